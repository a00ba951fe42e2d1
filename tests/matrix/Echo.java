// java Echo serve PORT | ask PORT | block PORT: java.nio with one Selector for all connections; "block" is java.net.Socket in threads.
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;

class Echo {
    static final String HOST = setting("HOST", "127.0.0.1");
    static final int CONNECTIONS = Integer.parseInt(setting("CONNECTIONS", "20")), ROUNDS = Integer.parseInt(setting("ROUNDS", "40"));
    static final int[] SIZES = {1, 100, 4096, 70_000, 400_000};

    static String setting(String name, String usual) {
        String set = System.getenv("ECHO_" + name);
        return set == null ? usual : set;
    }

    static byte[] message(int connection, int turn) {
        byte[] data = new byte[SIZES[(connection + turn) % SIZES.length]];
        for (int i = 0; i < data.length; i++) data[i] = (byte) (i * 31 + connection * 7 + turn);
        return data;
    }

    static void serve(int port) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(HOST, port), 100);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel peer = listener.accept();
                    if (peer == null) continue;
                    peer.configureBlocking(false);
                    peer.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
                } else {
                    echo(key);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    static void echo(SelectionKey key) throws Exception {
        SocketChannel peer = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        if (key.isReadable() && peer.read(buffer) < 0) {
            peer.close();
            return;
        }
        buffer.flip();
        peer.write(buffer);
        key.interestOps(buffer.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
        buffer.compact();
    }

    static class Asker {
        int connection, turn;
        byte[] expected;
        ByteBuffer unsent, got;

        void begin() {
            expected = message(connection, turn);
            unsent = ByteBuffer.wrap(expected);
            got = ByteBuffer.allocate(expected.length);
        }
    }

    static void ask(int port) throws Exception {
        Selector selector = Selector.open();
        for (int connection = 0; connection < CONNECTIONS; connection++) {
            SocketChannel channel = SocketChannel.open();
            channel.configureBlocking(false);
            Asker asker = new Asker();
            asker.connection = connection;
            asker.begin();
            boolean at_once = channel.connect(new InetSocketAddress(HOST, port));
            int both = SelectionKey.OP_READ | SelectionKey.OP_WRITE;
            channel.register(selector, at_once ? both : SelectionKey.OP_CONNECT, asker);
        }
        int done = 0;
        while (done < CONNECTIONS) {
            if (selector.select(30_000) == 0) throw new Exception("nothing comes any more");
            for (SelectionKey key : selector.selectedKeys()) if (turn(key)) done++;
            selector.selectedKeys().clear();
        }
    }

    /** Whether a connection has done all its rounds. */
    static boolean turn(SelectionKey key) throws Exception {
        SocketChannel channel = (SocketChannel) key.channel();
        Asker asker = (Asker) key.attachment();
        if (key.isConnectable()) channel.finishConnect();
        if (channel.isConnected() && asker.unsent.hasRemaining()) channel.write(asker.unsent);
        if (key.isReadable() && channel.read(asker.got) < 0) throw new Exception("the server has ended a connection");
        if (!asker.got.hasRemaining()) {
            if (!Arrays.equals(asker.got.array(), asker.expected)) throw new Exception("other bytes");
            if (++asker.turn == ROUNDS) {
                channel.close();
                return true;
            }
            asker.begin();
        }
        key.interestOps(SelectionKey.OP_READ | (asker.unsent.hasRemaining() ? SelectionKey.OP_WRITE : 0));
        return false;
    }

    static void block(int port) throws Exception {
        AtomicInteger good = new AtomicInteger();
        ArrayList<Thread> threads = new ArrayList<>();
        for (int i = 0; i < CONNECTIONS; i++) {
            int connection = i;
            Thread thread = new Thread(() -> {
                try (Socket socket = new Socket(HOST, port)) {
                    socket.setTcpNoDelay(true);
                    socket.setSoTimeout(30_000);
                    InputStream in = socket.getInputStream();
                    OutputStream out = socket.getOutputStream();
                    for (int turn = 0; turn < ROUNDS; turn++) {
                        byte[] data = message(connection, turn);
                        // so much as the way there and back takes at once
                        for (int at = 0; at < data.length; at += 16384) {
                            int length = Math.min(16384, data.length - at);
                            out.write(data, at, length);
                            byte[] got = in.readNBytes(length);
                            if (!Arrays.equals(got, Arrays.copyOfRange(data, at, at + length))) throw new Exception("other bytes");
                        }
                        good.incrementAndGet();
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
        if (good.get() != CONNECTIONS * ROUNDS) System.exit(1);
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        switch (arguments[0]) {
            case "serve" -> serve(port);
            case "ask" -> ask(port);
            default -> block(port);
        }
        System.out.println(CONNECTIONS + " connections, " + CONNECTIONS * ROUNDS + " echoes");
    }
}
