//! Datagrams come by the kernel's queue and by another way: which of the two is asked first. What was sent first comes first, as far as that
//! can be known, and neither waits for ever.

/// After so many datagrams of the other way one of the kernel's has its turn.
pub(super) const KERNELS_TURN: u32 = 64;
/// So many of the kernel's may be older than the first one of a new sender.
const OLDER: u32 = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Turns {
    /// So many of the kernel's queue come first, if there are any.
    kernels: u32,
    /// Datagrams of the other way since the kernel had its turn.
    taken: u32,
    /// The next one was looked at, and is still the next one.
    peeked: bool,
}

impl Turns {
    /// Whether the kernel's queue has its turn, if there is anything in it.
    pub(super) fn is_kernels(&mut self, peeks: bool) -> bool {
        if self.peeked {
            return false;
        }
        if self.taken >= KERNELS_TURN {
            (self.taken, self.kernels) = (0, self.kernels.max(1));
        }
        let turn = self.kernels > 0;
        if turn && !peeks {
            self.kernels -= 1;
        }
        turn
    }

    /// Whether the next datagram was looked at, and is still the next one.
    pub(super) fn is_peeked(&self) -> bool {
        self.peeked
    }

    /// Somebody new sends by the other way.
    pub(super) fn new_sender(&mut self) {
        self.kernels = OLDER;
    }

    /// Whether somebody new has come since the kernel had nothing.
    pub(super) fn has_news(&self) -> bool {
        self.kernels > 0
    }

    /// A datagram of the other way was taken, or looked at if it `stays`.
    pub(super) fn took(&mut self, stays: bool) {
        self.peeked = stays;
        self.taken += u32::from(!stays);
    }

    /// The kernel has nothing.
    pub(super) fn kernel_is_empty(&mut self) {
        (self.kernels, self.taken) = (0, 0);
    }
}
