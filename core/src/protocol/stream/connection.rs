//! The connection: ties the directions together; data commands and completions.

use super::{
    Config, PeerFault, State, TARGET_RECORDS, Tables, Taken, control::Due, control_reserve, credit::SendCredit, iomap::Iomaps,
    queue::SendQueue, receive::Receiver, send::Sender,
};
use crate::{
    wire::{ByteOrder, ConnectRecord, Control, IomapRecord, MAX_DATA, Message, Sge, decode_iomap_size, encode_iomap_size},
    work::{ExposedMemory, MessageMode},
};

/// What is known of the peer once it is connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) order: ByteOrder,
    /// Its target list; the length counts records.
    pub(super) targets: Sge,
    /// The record that we fill in next.
    pub(super) next_record: u32,
}

/// One side of a stream.
#[derive(Debug)]
pub struct Connection {
    /// Written by `set_state` only.
    pub(super) state: State,
    pub(super) mode: MessageMode,
    /// Our byte order.
    pub(super) order: ByteOrder,
    pub(super) exposed: ExposedMemory,
    iomap_entries: u16,
    receive_queue: u16,
    /// Send queue entries for data.
    pub(super) data_queue: u32,
    pub(super) peer: Option<Peer>,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) queue: SendQueue,
    /// Control messages to be sent.
    pub(super) due: Due,
    pub(super) iomaps: Iomaps,
}

impl Connection {
    /// A connection whose peer is not known yet. See [`Config`] for what the values must be.
    pub fn new(config: &Config) -> Connection {
        let per_message = work_requests(config.mode);
        let data_queue = config.send_queue.saturating_sub(control_reserve(config.mode)).max(per_message);
        Connection {
            state: State::Connecting,
            mode: config.mode,
            order: if config.host_is_big_endian { ByteOrder::Big } else { ByteOrder::Little },
            exposed: config.exposed,
            iomap_entries: config.iomap_entries,
            receive_queue: config.receive_queue.max(1),
            data_queue,
            peer: None,
            receiver: Receiver::new(config.receive_bytes, config.receive_queue),
            sender: Sender::new(config.send_bytes, config.max_write),
            queue: SendQueue::new(data_queue, config.send_bytes),
            due: Due::default(),
            iomaps: Iomaps::default(),
        }
    }

    /// The private data of our CM request or reply.
    pub fn connect_record(&self) -> [u8; 40] {
        ConnectRecord {
            order: self.order,
            has_iomap: true,
            counts_iomaps: true,
            credits: self.receive_queue,
            iomap_size: encode_iomap_size(self.iomap_entries),
            targets: Sge { length: TARGET_RECORDS, ..self.exposed.targets },
            data_buffer: Sge { length: self.receiver.half(), ..self.exposed.receive },
        }
        .to_bytes()
    }

    /// Takes the peer's private data. To be called before the first message is handed in, which may come before the connection manager
    /// says that the connection stands.
    pub fn establish(&mut self, private_data: &[u8]) -> Result<(), PeerFault> {
        if self.state != State::Connecting {
            return Ok(());
        }
        let established = self.take_record(private_data);
        self.set_state(if established.is_ok() { State::Open } else { State::Broken });
        established
    }

    fn take_record(&mut self, private_data: &[u8]) -> Result<(), PeerFault> {
        let record = ConnectRecord::parse(private_data)?;
        if record.credits == 0 {
            return Err(PeerFault::NoCredits);
        }
        if record.data_buffer.length == 0 {
            return Err(PeerFault::NoBuffer);
        }
        if record.targets.length == 0 {
            return Err(PeerFault::NoTargets);
        }
        let list_bytes = u64::from(record.targets.length) * Sge::BYTES as u64;
        if record.targets.addr.checked_add(list_bytes).is_none()
            || record.data_buffer.addr.checked_add(u64::from(record.data_buffer.length)).is_none()
        {
            return Err(PeerFault::RecordOverflow);
        }
        // The buffer in the connect record stands for record 0 on both sides.
        self.peer = Some(Peer { order: record.order, targets: record.targets, next_record: 1 % record.targets.length });
        self.receiver.set_peer_records(record.targets.length);
        let entries = if record.has_iomap { decode_iomap_size(record.iomap_size) } else { 0 };
        let table_bytes = u64::from(entries) * IomapRecord::BYTES as u64;
        if record.targets.addr.checked_add(list_bytes).and_then(|end| end.checked_add(table_bytes)).is_none() {
            return Err(PeerFault::RecordOverflow);
        }
        self.iomaps.set_peer_entries(entries);
        self.sender.credit = SendCredit::new(record.credits, record.counts_iomaps, self.mode == MessageMode::Send);
        self.sender.targets.start(record.data_buffer);
        Ok(())
    }

    /// A message arrived and used up a receive. `tables` is read for SGL and IOMAP messages only; the records of the target list in the
    /// result were taken over, and have to be zeroed there before anything is posted.
    pub fn received(&mut self, message: u32, tables: &dyn Tables) -> Result<Taken, PeerFault> {
        if let Some(taken) = self.received_data(message) {
            return taken.map(|()| Taken::NONE);
        }
        self.receiver.receive_used();
        // Nothing that comes after the end matters, whatever it is.
        if self.peer_disconnected() {
            return Ok(Taken::NONE);
        }
        let taken = self.take_message(message, tables);
        if taken.is_err() {
            self.broken_by_peer();
        }
        taken
    }

    /// As [`Connection::received`], of what nearly every message is: data, while both directions are open. `None`, and nothing is done,
    /// where it is another.
    #[inline(always)]
    pub fn received_data(&mut self, message: u32) -> Option<Result<(), PeerFault>> {
        // As it is sent: a DATA message is its length. (With 4-byte SENDs it may have to be turned round first.)
        if self.state != State::Open || self.mode != MessageMode::Immediate || message > MAX_DATA {
            return None;
        }
        self.receiver.receive_used();
        let taken = self.receiver.data(message);
        if taken.is_err() {
            self.broken_by_peer();
        }
        Some(taken)
    }

    /// Something arrived that is no message: see `Completion::ReceivedMalformed`.
    pub fn received_malformed(&mut self, len: u32) -> PeerFault {
        self.receiver.receive_used();
        self.broken_by_peer();
        PeerFault::MalformedMessage(len)
    }

    fn take_message(&mut self, message: u32, tables: &dyn Tables) -> Result<Taken, PeerFault> {
        let peer = self.peer.as_ref().ok_or(PeerFault::NotEstablished)?;
        // A 4-byte SEND is in the order of its sender; an immediate has been put right by the transport.
        let swapped = self.mode == MessageMode::Send && peer.order != self.order;
        match Message::parse(if swapped { message.swap_bytes() } else { message })? {
            Message::Data(len) => self.may_take_data().and_then(|()| self.receiver.data(len))?,
            Message::Iomap(index) => self.take_iomap(index, tables)?,
            Message::Sgl(limit) => {
                self.sender.credit.set_limit(limit)?;
                return self.sender.targets.refill(&tables.target_list(), self.order);
            }
            Message::Ctrl(Control::Disconnect) => self.peer_disconnects(),
            Message::Ctrl(Control::Shutdown) => self.peer_shuts_down(),
            Message::Ctrl(Control::KeepAlive) => {}
        }
        Ok(Taken::NONE)
    }

    fn take_iomap(&mut self, index: u32, tables: &dyn Tables) -> Result<(), PeerFault> {
        self.may_take_data()?;
        self.receiver.iomap()?;
        let known = index < u32::from(self.iomap_entries);
        let record = if known { IomapRecord::parse(&tables.iomap_record(index), self.order) } else { IomapRecord::default() };
        self.iomaps.take(index, self.iomap_entries, record)
    }

    /// The request `id` and all before it are done.
    pub fn sent(&mut self, id: u64) {
        let bytes = self.queue.done(id);
        let idle = !self.queue.completion_is_due() && self.sender.committed() == 0;
        self.sender.sent(bytes, idle);
    }

    /// How many receives to post before connecting.
    pub fn receives_initial(&self) -> u32 {
        self.receiver.receives_initial()
    }

    /// How many receives to post again now. They come in batches.
    #[inline(always)]
    pub fn receives_due(&self) -> u32 {
        self.receiver.receives_due()
    }

    /// So many receives were posted again.
    pub fn receives_posted(&mut self, count: u32) {
        self.receiver.receives_posted(count);
    }

    /// Bytes that can be read.
    pub fn readable(&self) -> u32 {
        self.receiver.readable()
    }

    /// Messages with data that have arrived in all, modulo 2^32: who has seen this number has seen that data.
    pub fn arrivals(&self) -> u32 {
        self.receiver.arrivals()
    }

    /// Whether the peer can send nothing until bytes are read.
    pub fn receives_no_more(&self) -> bool {
        self.receiver.is_full()
    }

    /// The next contiguous piece to read: offset in the receive area and length.
    #[inline(always)]
    pub fn read_at(&self) -> Option<(u32, u32)> {
        self.receiver.read_at()
    }

    /// The contiguous piece that starts `skip` bytes after the read position.
    pub fn peek_at(&self, skip: u32) -> Option<(u32, u32)> {
        self.receiver.peek_at(skip)
    }

    /// The application has taken `count` bytes, at most [`Connection::readable`]. May make a grant due.
    #[inline(always)]
    pub fn consume(&mut self, count: u32) {
        self.receiver.consume(count);
    }

    /// How many bytes a single [`Connection::commit`] may take now, all in one piece at [`Connection::write_at`].
    pub fn writable(&self) -> u32 {
        // What the peer is to be told of mappings goes before.
        let before = self.iomaps.due() as u32;
        if self.has_queue_entries(before + 1) && u32::from(self.sender.credit.available()) > before { self.sender.writable() } else { 0 }
    }

    /// Whether we may send, and there is room in the send queue for so many messages.
    #[inline]
    pub(super) fn has_queue_entries(&self, messages: u32) -> bool {
        self.state.may_send() && self.has_room_for(messages)
    }

    #[inline]
    pub(super) fn has_room_for(&self, messages: u32) -> bool {
        let per_message = work_requests(self.mode);
        let in_use = self.queue.data_entries() + self.due.data_entries() + self.sender.committed() * per_message;
        in_use + messages * per_message <= self.data_queue
    }

    /// Where in the send area the next bytes go.
    pub fn write_at(&self) -> u32 {
        self.sender.write_at()
    }

    /// `count` bytes were copied to [`Connection::write_at`]: at most as many as [`Connection::writable`] said, which still holds if
    /// completions and messages were handed in since. Does nothing if the connection has ended since.
    pub fn commit(&mut self, count: u32) {
        if self.has_queue_entries(1) {
            self.sender.commit(count);
        }
    }

    /// Bytes committed that are not known to have arrived.
    pub fn unacknowledged(&self) -> u32 {
        self.sender.used()
    }

    /// Bytes of the send area that are free or under way: no more than these can be under way at once.
    pub fn send_room(&self) -> u32 {
        self.sender.size()
    }

    /// Work requests posted and not known to be complete.
    pub fn outstanding(&self) -> u32 {
        self.queue.outstanding()
    }

    /// Whether a signaled no-op ([`Connection::keep_alive`]) is needed to learn that all requests are done.
    pub fn flush_needed(&self) -> bool {
        self.queue.ends_unsignaled() && !self.has_work()
    }

    /// From now on every request is signaled, or only as many as the queue needs. For whoever waits until the send queue drains.
    pub fn set_signal_all(&mut self, on: bool) {
        self.queue.set_signal_all(on);
    }
}

/// Work requests that a DATA message takes.
const fn work_requests(mode: MessageMode) -> u32 {
    match mode {
        MessageMode::Immediate => 1,
        MessageMode::Send => 2,
    }
}
