//! Reading and writing one field of a record at a constant offset.
//!
//! The offsets are constants that lie within the fixed arrays they are used on, so the branches for a field outside are
//! compiled away; they exist because nothing here may panic.

/// The `N` bytes at `at`.
pub(super) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// Puts the `N` bytes of a field at `at`.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *field = value;
    }
}
