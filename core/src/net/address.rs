//! Addresses, from what the caller gives.

use std::{
    io::{Error, ErrorKind, Result},
    net::{SocketAddr, ToSocketAddrs},
};

/// Tries one address after the other; the last one's error, if none is good.
pub(super) fn each<T>(addresses: impl ToSocketAddrs, mut attempt: impl FnMut(SocketAddr) -> Result<T>) -> Result<T> {
    let mut failure = Error::new(ErrorKind::InvalidInput, "no address");
    for address in addresses.to_socket_addrs()? {
        match attempt(address) {
            Ok(done) => return Ok(done),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The first one.
pub(super) fn first(addresses: impl ToSocketAddrs) -> Result<SocketAddr> {
    each(addresses, Ok)
}
