//! The 32-bit message that goes with every transfer: operation in bits 31..29, value below (PROTOCOL.md 1.4).

use super::WireError;

const OPERATION_SHIFT: u32 = 29;
const VALUE_MASK: u32 = (1 << OPERATION_SHIFT) - 1;

const DATA: u32 = 0;
const SGL: u32 = 4;
const IOMAP: u32 = 6;
const CTRL: u32 = 7;

const DISCONNECT: u32 = 0;
const KEEP_ALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;

/// The longest DATA message that the value field can express.
pub const MAX_DATA: u32 = VALUE_MASK;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// So many bytes were just written into the receive buffer.
    Data(u32),
    /// A new send limit; a record of the target list may have been written.
    Sgl(u16),
    /// The iomap record with this index was just written.
    Iomap(u32),
    /// A control message.
    Ctrl(Control),
}

/// The value of a CTRL message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Both directions are over.
    Disconnect,
    /// Nothing. Current peers send none of these: their keep-alives have no message.
    KeepAlive,
    /// The sender sends no more data.
    Shutdown,
}

impl Message {
    /// Reads a message. Operation 2 (WRITE) marks local work requests only, so on the wire it is as wrong as the reserved ones.
    pub const fn parse(immediate: u32) -> Result<Message, WireError> {
        let value = immediate & VALUE_MASK;
        let operation = immediate >> OPERATION_SHIFT;
        // Nearly all are, and a comparison costs less than a jump by table.
        if operation == DATA {
            return Ok(Message::Data(value));
        }
        match operation {
            // The limit has 16 bits; what a peer puts above them is not for us.
            SGL => Ok(Message::Sgl(value as u16)),
            IOMAP => Ok(Message::Iomap(value)),
            CTRL => match value {
                DISCONNECT => Ok(Message::Ctrl(Control::Disconnect)),
                KEEP_ALIVE => Ok(Message::Ctrl(Control::KeepAlive)),
                SHUTDOWN => Ok(Message::Ctrl(Control::Shutdown)),
                value => Err(WireError::UnknownControl(value)),
            },
            operation => Err(WireError::ReservedOperation(operation as u8)),
        }
    }

    /// The message as it is sent. A value too large for its field is cut off; senders keep to [`MAX_DATA`].
    pub const fn to_u32(self) -> u32 {
        let (operation, value) = match self {
            Message::Data(len) => (DATA, len),
            Message::Sgl(limit) => (SGL, limit as u32),
            Message::Iomap(index) => (IOMAP, index),
            Message::Ctrl(Control::Disconnect) => (CTRL, DISCONNECT),
            Message::Ctrl(Control::KeepAlive) => (CTRL, KEEP_ALIVE),
            Message::Ctrl(Control::Shutdown) => (CTRL, SHUTDOWN),
        };
        (operation << OPERATION_SHIFT) | (value & VALUE_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a capture of the shipped implementation shows, and the values that it does not show.
    const GOLDEN: [(u32, Message); 9] = [
        (0x8000_0180, Message::Sgl(384)),
        (0x0000_0064, Message::Data(100)),
        (0x0000_0010, Message::Data(16)),
        (0xe000_0000, Message::Ctrl(Control::Disconnect)),
        (0xc000_0000, Message::Iomap(0)),
        (0xe000_0001, Message::Ctrl(Control::KeepAlive)),
        (0xe000_0002, Message::Ctrl(Control::Shutdown)),
        (0x1fff_ffff, Message::Data(MAX_DATA)),
        (0x8000_ffff, Message::Sgl(65535)),
    ];

    #[test]
    fn bytes_in() {
        assert_eq!(Message::parse(u32::from_be_bytes([0x80, 0, 1, 0x80])), Ok(Message::Sgl(384)));
    }

    #[test]
    fn bytes_out() {
        let mut bytes = [0xa5; 4];
        bytes.copy_from_slice(&Message::Data(100).to_u32().to_be_bytes());
        assert_eq!(bytes, [0, 0, 0, 100]);
    }

    #[test]
    fn parse() {
        for (immediate, message) in GOLDEN {
            assert_eq!(Message::parse(immediate), Ok(message), "{immediate:#x}");
        }
        assert_eq!(Message::parse(0x9fff_0180), Ok(Message::Sgl(384)), "only the low 16 bits are the limit");
    }

    #[test]
    fn emit() {
        for (immediate, message) in GOLDEN {
            assert_eq!(message.to_u32(), immediate, "{message:?}");
        }
        assert_eq!(Message::Data(u32::MAX).to_u32(), MAX_DATA, "a value never reaches into the operation");
    }

    #[test]
    fn malformed() {
        for operation in [1, 2, 3, 5] {
            assert_eq!(Message::parse((operation << 29) | 7), Err(WireError::ReservedOperation(operation as u8)));
        }
        assert_eq!(Message::parse(0xe000_0003), Err(WireError::UnknownControl(3)));
        assert_eq!(Message::parse(u32::MAX), Err(WireError::UnknownControl(0x1fff_ffff)));
    }
}
