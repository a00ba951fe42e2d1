//! `RSOCKET_FABRIC`: which fabrics connections may take, and which is tried first.

use super::file::printable;

/// The fabrics that are tried, in this order; the kernel is always the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FabricChoice {
    /// None: every connection is the kernel's.
    None,
    /// Shared memory alone.
    Shm,
    /// RDMA alone.
    Verbs,
    /// Shared memory, for peers on this host, then RDMA.
    #[default]
    ShmThenVerbs,
    /// RDMA, then shared memory.
    VerbsThenShm,
}

impl FabricChoice {
    /// Takes a list of `shm`, `verbs` and `kernel`, apart by commas or blanks. Where `kernel` stands makes no difference; a list with
    /// no known word is the default. `warn` gets a sentence for each unknown word.
    pub fn parse(list: &[u8], warn: &mut dyn FnMut(String)) -> Self {
        let mut choice = None;
        for word in list.split(|byte| *byte == b',' || byte.is_ascii_whitespace()).filter(|word| !word.is_empty()) {
            let before = choice.unwrap_or(FabricChoice::None);
            choice = match word {
                b"shm" => Some(before.then_shm()),
                b"verbs" => Some(before.then_verbs()),
                b"kernel" => Some(before),
                unknown => {
                    warn(format!("RSOCKET_FABRIC: `{}` is not one of shm, verbs, kernel; it is ignored", printable(unknown)));
                    choice
                }
            };
        }
        choice.unwrap_or_default()
    }

    fn then_shm(self) -> Self {
        match self {
            FabricChoice::None => FabricChoice::Shm,
            FabricChoice::Verbs => FabricChoice::VerbsThenShm,
            listed => listed,
        }
    }

    fn then_verbs(self) -> Self {
        match self {
            FabricChoice::None => FabricChoice::Verbs,
            FabricChoice::Shm => FabricChoice::ShmThenVerbs,
            listed => listed,
        }
    }

    /// Whether shared memory is tried.
    pub fn shm(self) -> bool {
        matches!(self, FabricChoice::Shm | FabricChoice::ShmThenVerbs | FabricChoice::VerbsThenShm)
    }

    /// Whether RDMA is tried.
    pub fn verbs(self) -> bool {
        matches!(self, FabricChoice::Verbs | FabricChoice::ShmThenVerbs | FabricChoice::VerbsThenShm)
    }

    /// Whether any fabric is tried.
    pub fn any(self) -> bool {
        self != FabricChoice::None
    }

    /// Whether both are tried, and RDMA goes before shared memory.
    pub fn verbs_first(self) -> bool {
        self == FabricChoice::VerbsThenShm
    }
}
