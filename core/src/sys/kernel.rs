//! System calls without libc: libc's functions would enter the hooks of the preload library, whose code may stand in
//! front of this one.

use core::{
    arch::asm,
    ffi::{CStr, c_int, c_long, c_void},
    mem::MaybeUninit,
    ptr::null_mut,
};

use crate::error::{Errno, Result};

/// An argument of a system call: one machine word.
pub trait Word {
    /// The word, as the kernel takes it.
    fn word(self) -> usize;
}

impl Word for usize {
    fn word(self) -> usize {
        self
    }
}

impl Word for u32 {
    fn word(self) -> usize {
        self as usize
    }
}

impl Word for c_int {
    fn word(self) -> usize {
        self as isize as usize
    }
}

impl Word for i64 {
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Word for *const T {
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Word for *mut T {
    fn word(self) -> usize {
        self as usize
    }
}

/// Makes a system call of up to six arguments: `call!(SYS_read, fd, buffer, length)`, for use in an unsafe block.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let arguments: &[usize] = &[$($crate::sys::kernel::Word::word($argument)),*];
        $crate::sys::kernel::system_call($number, arguments)
    }};
}
pub(crate) use call;

/// Makes system call `number`; arguments after the sixth are ignored, missing ones are 0.
///
/// # Safety
/// What the kernel does with the arguments must be sound: pointers must be good for what the call reads and writes.
#[inline]
pub unsafe fn system_call(number: c_long, arguments: &[usize]) -> Result<usize> {
    let word = |at: usize| arguments.get(at).copied().unwrap_or(0);
    // SAFETY: the caller's promise is the one asked for.
    let result = unsafe { enter(number as usize, [word(0), word(1), word(2), word(3), word(4), word(5)]) };
    match result {
        error @ -4095..=-1 => Err(Errno::from_raw_os_error(-error as i32)),
        value => Ok(value as usize),
    }
}

/// # Safety
/// As for [`system_call`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn enter(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the instruction changes rax, rcx, r11 and what the call does to memory; all are declared.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// # Safety
/// As for [`system_call`].
#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn enter(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the instruction changes x0 and what the call does to memory; both are declared.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

/// dup3(2) on numbers. (A duplicate that replaces another number has no owner that Rust could know of.)
pub fn dup3(old: c_int, new: c_int, flags: c_int) -> Result<c_int> {
    // SAFETY: takes no pointer; which numbers are replaced is the program's wish.
    unsafe { call!(libc::SYS_dup3, old, new, flags) }.map(|number| number as c_int)
}

/// close(2) of a number.
pub fn close(fd: c_int) -> Result<()> {
    // SAFETY: takes no pointer; what is closed is the program's wish.
    unsafe { call!(libc::SYS_close, fd) }.map(drop)
}

/// close_range(2).
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: takes no pointer; what is closed is the program's wish.
    unsafe { call!(libc::SYS_close_range, first, last, flags) }.map(drop)
}

/// Ends the process.
pub fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: takes no pointer; does not come back.
        let _ = unsafe { call!(libc::SYS_exit_group, status) };
    }
}

/// The size of the process's descriptor table in the kernel: every open descriptor's number is below it.
/// `None` when /proc does not say.
pub fn descriptor_table_size() -> Option<usize> {
    from_status(b"FDSize:")
}

/// How many threads the process has. `None` when /proc does not say.
pub fn threads() -> Option<usize> {
    from_status(b"Threads:")
}

fn from_status(name: &[u8]) -> Option<usize> {
    let status = open(c"/proc/self/status").ok()?;
    let mut text = [MaybeUninit::<u8>::uninit(); 4096];
    // SAFETY: reads at most `text.len()` bytes into `text`.
    let read = unsafe { call!(libc::SYS_read, status, text.as_mut_ptr(), text.len()) };
    // SAFETY: closes the descriptor that was opened above and is known to nobody else.
    let _ = unsafe { call!(libc::SYS_close, status) };
    let start = text.get(..read.ok()?)?;
    // SAFETY: the kernel has written these bytes; MaybeUninit<u8> has the layout of u8.
    let start = unsafe { &*(start as *const [MaybeUninit<u8>] as *const [u8]) };
    number_in(start, name)
}

fn number_in(status: &[u8], name: &[u8]) -> Option<usize> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    core::str::from_utf8(line).ok()?.trim().parse().ok()
}

fn open(path: &CStr) -> Result<c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: reads the path, which ends in a 0.
    let fd = unsafe { call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, null_mut::<c_void>()) }?;
    Ok(fd as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_and_an_error() {
        // SAFETY: takes no pointer.
        let pid = unsafe { call!(libc::SYS_getpid) };
        assert_eq!(pid, Ok(std::process::id() as usize));
        // SAFETY: closes nothing.
        let error = unsafe { call!(libc::SYS_close, -1) };
        assert_eq!(error, Err(Errno::BADF));
    }

    #[test]
    fn six_arguments_arrive_in_order() {
        // SAFETY: maps fresh memory at a place of the kernel's choice.
        let page = unsafe { call!(libc::SYS_mmap, 0usize, 4096usize, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0i64) }
            .unwrap();
        assert_eq!(page % 4096, 0);
        // SAFETY: the mapping made above, unused.
        assert_eq!(unsafe { call!(libc::SYS_munmap, page, 4096usize) }, Ok(0));
    }

    #[test]
    fn the_table_holds_every_open_number() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let size = descriptor_table_size().unwrap();
        assert!(size > std::os::fd::AsRawFd::as_raw_fd(&file) as usize);
        assert_eq!(number_in(b"Name:\tx\nFDSize:\t256\nGroups:\t0", b"FDSize:"), Some(256));
        assert_eq!(number_in(b"FDSize:\tmany\n", b"FDSize:"), None);
        assert_eq!(number_in(b"", b"FDSize:"), None);
        assert!(threads() >= Some(1));
    }
}
