//! The methods that a wrapper passes on unchanged to its field `inner`, in groups.

macro_rules! forward {
    ($($group:ident),+) => { $(forward!(@$group);)+ };
    (@kind) => {
        fn kind(&self) -> FabricKind {
            self.inner.kind()
        }
    };
    (@limits) => {
        fn limits(&self) -> EndpointLimits {
            self.inner.limits()
        }

        fn local_addr(&self) -> SocketAddr {
            self.inner.local_addr()
        }

        fn peer_addr(&self) -> SocketAddr {
            self.inner.peer_addr()
        }

        fn path(&self) -> Option<$crate::fabric::Path> {
            self.inner.path()
        }
    };
    (@areas) => {
        fn exposed(&self) -> ExposedMemory {
            self.inner.exposed()
        }

        fn receive_area(&self) -> &Region {
            self.inner.receive_area()
        }

        fn send_area(&self) -> &Region {
            self.inner.send_area()
        }

        fn target_area(&self) -> &Region {
            self.inner.target_area()
        }
    };
    (@events) => {
        fn event_fd(&self) -> Option<RawFd> {
            self.inner.event_fd()
        }

        fn arm_word(&mut self) -> Option<(std::sync::Arc<dyn $crate::fabric::SleepWord>, u32)> {
            self.inner.arm_word()
        }

        fn is_waiting(&self) -> bool {
            self.inner.is_waiting()
        }

        fn peer_has_closed(&self) -> bool {
            self.inner.peer_has_closed()
        }

        fn has_delivered(&self) -> bool {
            self.inner.has_delivered()
        }

        fn waits_beside_peer(&self) -> Option<bool> {
            self.inner.waits_beside_peer()
        }

        fn clear_events(&mut self) {
            self.inner.clear_events();
        }
    };
    (@setup) => {
        fn set_token(&mut self, token: Token) {
            self.inner.set_token(token);
        }

        fn connect(&mut self, private_data: &[u8]) -> Result<()> {
            self.inner.connect(private_data)
        }

        fn accept(&mut self, private_data: &[u8]) -> Result<()> {
            self.inner.accept(private_data)
        }

        fn reject(&mut self) {
            self.inner.reject();
        }

        fn outcome(&mut self) -> Option<$crate::fabric::Outcome> {
            self.inner.outcome()
        }

        fn disconnect(&mut self) {
            self.inner.disconnect();
        }

        fn reset(&mut self) {
            self.inner.reset();
        }
    };
}

pub(super) use forward;
