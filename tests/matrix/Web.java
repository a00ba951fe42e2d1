// java Web serve PORT | ask PORT: com.sun.net.httpserver and java.net.http.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;

class Web {
    static final String HOST = Echo.setting("HOST", "127.0.0.1");
    static final int REQUESTS = Integer.parseInt(Echo.setting("REQUESTS", "300"));

    static byte[] body(int number) {
        byte[] data = new byte[number % 10 == 0 ? 1_000_000 : 10 * number];
        for (int i = 0; i < data.length; i++) data[i] = (byte) (i * 31 + number);
        return data;
    }

    static void serve(int port) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(HOST, port), 100);
        server.createContext("/echo", exchange -> {
            byte[] data = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, data.length == 0 ? -1 : data.length);
            try (var out = exchange.getResponseBody()) {
                out.write(data);
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }

    static void ask(int port) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(60)).build();
        URI at = URI.create("http://" + HOST + ":" + port + "/echo");
        int good = 0;
        for (int first = 0; first < REQUESTS; first += 20) {
            int last = Math.min(first + 20, REQUESTS);
            ArrayList<CompletableFuture<HttpResponse<byte[]>>> answers = new ArrayList<>();
            for (int number = first; number < last; number++) {
                var request = HttpRequest.newBuilder(at).timeout(Duration.ofSeconds(120)).POST(HttpRequest.BodyPublishers.ofByteArray(body(number)));
                answers.add(client.sendAsync(request.build(), HttpResponse.BodyHandlers.ofByteArray()));
            }
            for (int number = first; number < last; number++) {
                HttpResponse<byte[]> answer = answers.get(number - first).get();
                if (answer.statusCode() != 200 || !Arrays.equals(answer.body(), body(number))) throw new Exception("request " + number + ": other bytes");
                good++;
            }
        }
        System.out.println(good + " answers");
        System.exit(0);
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        if (arguments[0].equals("serve")) serve(port);
        else ask(port);
    }
}
