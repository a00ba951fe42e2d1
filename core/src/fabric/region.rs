//! Memory that a device or another process may write: page-aligned, its own mapping, reached by copies only.
//!
//! No plain reference into a region ever exists: what a peer writes while we look at it would make any `&[u8]` a lie. Every
//! access is checked against the region's length and is a copy, or an atomic one of a single word.

use core::{
    ffi::c_void,
    sync::atomic::{AtomicU32, AtomicU64},
};

use rustix::{
    fd::BorrowedFd,
    mm::{MapFlags, ProtFlags},
};

use crate::error::{Errno, Result};

/// An anonymous private mapping, one of a file that other processes share, or a part of one that another region owns.
pub struct Region {
    base: *mut u8,
    len: usize,
    mapped: usize,
}

// SAFETY: a region is plain memory that is only read and written by copies through raw pointers; there are no references
// into it that another thread could invalidate. Torn reads are possible by design (a device writes there) and harmless for bytes.
unsafe impl Send for Region {}
// SAFETY: as above; methods that write take `&self` because the device does not ask either.
unsafe impl Sync for Region {}

impl Default for Region {
    /// Of no bytes.
    fn default() -> Self {
        Region { base: core::ptr::NonNull::dangling().as_ptr(), len: 0, mapped: 0 }
    }
}

impl Region {
    /// Maps `len` bytes of zeros (rounded up to pages). The mapping is kept out of children (`MADV_DONTFORK`), so that a
    /// fork never makes registered pages copy-on-write under the device.
    pub fn new(len: usize) -> Result<Self> {
        Region::map(len, |at, mapped, place| {
            let read_write = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a fresh anonymous mapping at a place that nobody uses touches no existing memory.
            unsafe { rustix::mm::mmap_anonymous(at, mapped, read_write, MapFlags::PRIVATE | place) }
        })
    }

    /// Maps the first `len` bytes of a file that others may map too, out of children's sight as with [`Region::new`]. Whoever can make
    /// the file shorter can kill a process that looks at it: it must be sealed against that.
    pub fn shared(file: BorrowedFd<'_>, len: usize) -> Result<Self> {
        Region::map(len, |at, mapped, place| {
            let read_write = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a fresh mapping at a place that nobody uses touches no existing memory.
            unsafe { rustix::mm::mmap(at, mapped, read_write, MapFlags::SHARED | place, file, 0) }
        })
    }

    /// A mapping of `len` bytes, rounded up to pages, that `make` makes at the place it is given.
    fn map(len: usize, make: impl FnOnce(*mut c_void, usize, MapFlags) -> Result<*mut c_void>) -> Result<Self> {
        let mapped = len.max(1).checked_next_multiple_of(rustix::param::page_size()).ok_or(Errno::NOMEM)?;
        let place = Place::find(mapped)?;
        let base = make(place.at, mapped, place.flags)?;
        core::mem::forget(place);
        let region = Region { base: base.cast(), len, mapped };
        region.keep_from_children().map(|()| region)
    }

    /// How many mappings there are.
    #[cfg(test)]
    pub(crate) fn living() -> usize {
        LIVING.load(core::sync::atomic::Ordering::Relaxed)
    }

    /// Keeps the mapping out of children, as it was when it was made. A registration that ends may have undone that.
    pub fn keep_from_children(&self) -> Result<()> {
        // SAFETY: the range is a mapping of this region's own (empty for a window), whose contents do not change.
        unsafe { rustix::mm::madvise(self.base.cast(), self.mapped, rustix::mm::Advice::LinuxDontFork) }
    }

    /// Fills the whole with zeros, past the caches: the next to write here is a device.
    pub fn clear(&self) {
        const LINE: usize = 64;
        let lines = self.len / LINE * LINE;
        for at in (0..lines).step_by(LINE) {
            // SAFETY: the line lies within the region, which starts at a page or, as a window, where its owner says.
            unsafe { clear_line(self.base.wrapping_add(at)) };
        }
        store_fence();
        // SAFETY: the region is valid for its length; it never overlaps a Rust object.
        unsafe { core::ptr::write_bytes(self.base.wrapping_add(lines), 0, self.len - lines) };
    }

    /// A window of `len` bytes at `offset` of this region.
    ///
    /// # Safety
    /// The window must not be used after `self` has been dropped.
    pub unsafe fn window(&self, offset: usize, len: usize) -> Result<Region> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.mapped);
        if !fits {
            return Err(Errno::INVAL);
        }
        Ok(Region { base: self.base.wrapping_add(offset), len, mapped: 0 })
    }

    /// Usable length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no usable byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address, for registration.
    pub fn addr(&self) -> *mut u8 {
        self.base
    }

    /// The length of the whole mapping in bytes, for registration; 0 for a window.
    pub fn mapped_len(&self) -> usize {
        self.mapped
    }

    /// Copies `from` into the region at `offset`. Fails with EFAULT, copying nothing, where it does not fit.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        let to = self.checked(offset, from.len())?;
        // SAFETY: `to` is valid for `from.len()` bytes (checked); `from` is a live slice; a region never overlaps a Rust object.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    /// Copies bytes at `offset` out of the region. Fails with EFAULT, copying nothing, where it does not fit.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let from = self.checked(offset, into.len())?;
        // SAFETY: `from` is valid for `into.len()` bytes (checked); `into` is a live exclusive slice; no overlap as above.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `len` bytes at `offset` to `to_offset` of another region. Fails with EFAULT, copying nothing, where it does not fit.
    pub fn copy_to(&self, offset: usize, len: usize, to: &Region, to_offset: usize) -> Result<()> {
        let from = self.checked(offset, len)?;
        let to = to.checked(to_offset, len)?;
        // SAFETY: both are valid for `len` bytes (checked); `copy` allows that they overlap.
        unsafe { core::ptr::copy(from, to, len) };
        Ok(())
    }

    /// The 32-bit word at `offset`, for atomic access. `None` where it does not fit or is not aligned.
    #[inline(always)]
    pub fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let at = self.checked(offset, size_of::<u32>()).ok()?.cast::<AtomicU32>();
        // SAFETY: within the region (checked), which lives as long as the reference, and aligned; whoever else writes there does so to
        // memory that Rust sees as an atomic only.
        if at.is_aligned() { Some(unsafe { &*at }) } else { None }
    }

    /// The 64-bit word at `offset`, as [`Region::word`].
    #[inline(always)]
    pub fn long(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.checked(offset, size_of::<u64>()).ok()?.cast::<AtomicU64>();
        // SAFETY: as in `word`.
        if at.is_aligned() { Some(unsafe { &*at }) } else { None }
    }

    /// As [`Region::long`], of `count` words that follow one another.
    #[inline(always)]
    pub fn longs(&self, offset: usize, count: usize) -> Option<&[AtomicU64]> {
        let at = self.checked(offset, count.checked_mul(size_of::<u64>())?).ok()?.cast::<AtomicU64>();
        // SAFETY: as in `word`, for all of them.
        if at.is_aligned() { Some(unsafe { core::slice::from_raw_parts(at, count) }) } else { None }
    }

    #[inline(always)]
    fn checked(&self, offset: usize, len: usize) -> Result<*mut u8> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.base.wrapping_add(offset)),
            _ => Err(Errno::FAULT),
        }
    }
}

/// Zeros 64 bytes.
///
/// # Safety
/// They must be good for writes. Before anybody else learns of them there must be a [`store_fence`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn clear_line(line: *mut u8) {
    use core::arch::x86_64::_mm_stream_si64;
    for word in 0..8 {
        // SAFETY: within the line; the instruction asks for no alignment.
        unsafe { _mm_stream_si64(line.cast::<i64>().wrapping_add(word), 0) };
    }
}

#[cfg(target_arch = "x86_64")]
fn store_fence() {
    // SAFETY: SSE is part of x86-64; the instruction has no operands.
    unsafe { core::arch::x86_64::_mm_sfence() };
}

/// Zeros 64 bytes.
///
/// # Safety
/// They must be good for writes.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn clear_line(line: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::write_bytes(line, 0, 64) };
}

#[cfg(not(target_arch = "x86_64"))]
fn store_fence() {}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped == 0 {
            return;
        }
        // The mapping was made in `map` and nothing refers to it any more; windows promised to be gone.
        drop(Place { at: self.base.cast(), mapped: self.mapped, flags: MapFlags::empty() });
    }
}

/// Where a mapping goes, or is: to where the kernel likes, and in tests to where there is nothing beside it, so that whoever goes too far
/// is found. Dropping it unmaps what is there.
struct Place {
    at: *mut c_void,
    mapped: usize,
    flags: MapFlags,
}

#[cfg(not(test))]
impl Place {
    #[allow(clippy::unnecessary_wraps, reason = "in tests it can fail")]
    fn find(mapped: usize) -> Result<Self> {
        Ok(Place { at: core::ptr::null_mut(), mapped, flags: MapFlags::empty() })
    }
}

#[cfg(not(test))]
impl Drop for Place {
    fn drop(&mut self) {
        if self.at.is_null() {
            return;
        }
        // SAFETY: a mapping of the caller's that nothing refers to any more.
        let _ = unsafe { rustix::mm::munmap(self.at, self.mapped) };
    }
}

/// Bytes before and behind a mapping where nothing is: a page of any architecture.
#[cfg(test)]
const NOTHING: usize = 65_536;

/// Regions that have not been dropped.
#[cfg(test)]
static LIVING: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

#[cfg(test)]
impl Place {
    fn find(mapped: usize) -> Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let around =
            unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), mapped + 2 * NOTHING, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        LIVING.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        Ok(Place { at: around.wrapping_byte_add(NOTHING), mapped, flags: MapFlags::FIXED })
    }
}

#[cfg(test)]
impl Drop for Place {
    fn drop(&mut self) {
        LIVING.fetch_sub(1, core::sync::atomic::Ordering::Relaxed);
        // SAFETY: as mapped in `find`, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.at.wrapping_byte_sub(NOTHING), self.mapped + 2 * NOTHING) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fd::AsFd;

    use super::*;

    #[test]
    fn copies_in_and_out() {
        let region = Region::new(100).unwrap();
        region.write(90, b"0123456789").unwrap();
        let mut back = [0; 12];
        region.read(88, &mut back).unwrap();
        assert_eq!(&back, b"\0\x000123456789");
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let region = Region::new(100).unwrap();
        assert_eq!(region.write(91, b"0123456789"), Err(Errno::FAULT));
        assert_eq!(region.read(usize::MAX, &mut [0; 2]), Err(Errno::FAULT));
        assert_eq!(region.read(100, &mut []), Ok(()));
    }

    #[test]
    fn can_be_cleared() {
        for len in [1, 63, 64, 100, 4096] {
            let region = Region::new(len + 1).unwrap();
            region.write(0, &vec![7; len + 1]).unwrap();
            // SAFETY: the window is dropped before the region.
            unsafe { region.window(0, len) }.unwrap().clear();
            let mut back = vec![1; len + 1];
            region.read(0, &mut back).unwrap();
            let (cleared, behind) = back.split_at(len);
            assert!(cleared.iter().all(|byte| *byte == 0) && behind == [7], "{len}");
        }
    }

    #[test]
    fn shared_memory_is_one() {
        use core::sync::atomic::Ordering;
        let file = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 100).unwrap();
        let (one, other) = (Region::shared(file.as_fd(), 100).unwrap(), Region::shared(file.as_fd(), 100).unwrap());
        one.write(10, b"here").unwrap();
        let mut back = [0; 4];
        other.read(10, &mut back).unwrap();
        assert_eq!(&back, b"here");
        one.word(20).unwrap().store(7, Ordering::Release);
        assert_eq!(other.word(20).unwrap().load(Ordering::Acquire), 7);
        assert_eq!(other.long(16).unwrap().load(Ordering::Acquire).to_ne_bytes()[4..], 7_u32.to_ne_bytes());
        assert!(one.word(21).is_none() && one.word(97).is_none() && one.long(96).is_none() && one.word(96).is_some());
    }

    /// Reads a byte where there is none.
    #[test]
    #[ignore = "a program for the test below"]
    fn program_goes_too_far() {
        let (region, heap) = (Region::new(100).unwrap(), vec![7_u8; 100]);
        let beyond = match std::env::var("RSOCKET_BEYOND").as_deref() {
            Ok("before") => region.addr().wrapping_sub(1),
            Ok("behind") => region.addr().wrapping_add(region.mapped_len()),
            _ => heap.as_ptr().wrapping_add(heap.len()).cast_mut(),
        };
        // SAFETY: none: that somebody sees it is what is tested.
        println!("there is something: {}", unsafe { core::ptr::read_volatile(beyond) });
    }

    /// The tests would see it if a region were left; and with the address sanitizer (`scripts/fuzz`), if any other memory were.
    #[test]
    fn going_too_far_is_seen() {
        let run = |beyond: &str| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "--ignored", "--nocapture", "fabric::region::tests::program_goes_too_far"]);
            let output = command.env("RSOCKET_BEYOND", beyond).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&text).into_owned())
        };
        for beyond in ["before", "behind"] {
            let (lived, text) = run(beyond);
            assert!(!lived && !text.contains("there is something"), "{beyond}: {text}");
        }
        let sanitized = std::env::var("RSOCKET_SANITIZED").is_ok_and(|name| name == "address");
        let (lived, text) = run("heap");
        assert_eq!((!lived, text.contains("AddressSanitizer: heap-buffer-overflow")), (sanitized, sanitized), "{text}");
    }

    #[test]
    fn window_is_bounded() {
        let region = Region::new(100).unwrap();
        // SAFETY: the window is dropped before the region.
        let window = unsafe { region.window(50, 10) }.unwrap();
        window.write(0, b"ab").unwrap();
        assert_eq!(window.write(9, b"ab"), Err(Errno::FAULT));
        let mut back = [0; 2];
        region.read(50, &mut back).unwrap();
        assert_eq!(&back, b"ab");
        // SAFETY: fails, so there is no window.
        assert!(unsafe { region.window(4000, 1000) }.is_err());
    }
}
