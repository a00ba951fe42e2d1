//! C's streams on rsockets. stdio calls the kernel past the hooks: a stream on a socket whose data moves through the
//! library gets functions of its own. So do stdin, stdout and stderr, for good, once a socket is duplicated to 0, 1 or 2: these functions
//! call the hooks, which know what stands under the number at the time.

use core::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering},
};

use libc::{FILE, size_t, ssize_t};
use rsocket::{
    calls::Route,
    capi::boundary::{self, descriptor},
};

use super::{descriptor::close, io, real};
use crate::guard::ours;

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpurge(stream: *mut FILE);
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// Streams that are known by their files; one more works, but [`fileno`] does not know it.
const MOST: usize = 1024;

/// Our streams. An entry without a stream is free, or about to be used.
static STREAMS: [AtomicPtr<FILE>; MOST] = [const { AtomicPtr::new(null_mut()) }; MOST];
/// The number of each; -1 for a free entry.
static NUMBERS: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];
/// No entry from here on was ever used.
static END: AtomicUsize = AtomicUsize::new(0);

/// Opens a stream on a number.
fn open(fd: c_int, mode: *const c_char) -> *mut FILE {
    let free =
        |at: &usize| NUMBERS.get(*at).is_some_and(|number| number.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    let entry = (0..MOST).find(free).unwrap_or(MOST);
    let functions = Functions { read, write, seek: None, close: closed };
    // SAFETY: `mode` is a string (the caller's promise to fdopen); the functions take the number and the entry for a cookie.
    let stream = unsafe { fopencookie(cookie(fd, entry), mode, functions) };
    if let (Some(place), Some(number)) = (STREAMS.get(entry), NUMBERS.get(entry)) {
        END.fetch_max(entry + 1, Ordering::Relaxed);
        place.store(stream, Ordering::Release);
        if stream.is_null() {
            number.store(-1, Ordering::Release);
        }
    }
    stream
}

/// The number of a stream of ours.
fn number_of(stream: *mut FILE) -> Option<c_int> {
    let known = STREAMS.iter().take(END.load(Ordering::Relaxed)).position(|place| place.load(Ordering::Acquire) == stream);
    known.filter(|_| !stream.is_null()).and_then(|entry| NUMBERS.get(entry)).map(|number| number.load(Ordering::Relaxed))
}

/// Writes what our streams hold, before the process ends: the C library does that later than the library closes its connections.
pub(crate) fn flush() {
    for place in STREAMS.iter().take(END.load(Ordering::Relaxed)) {
        let stream = place.load(Ordering::Acquire);
        if !stream.is_null() {
            // SAFETY: an entry has a stream as long as that is open.
            unsafe { libc::fflush(stream) };
        }
    }
}

/// fdopen(3), of a socket that is not connected yet, too: what moves its data is seen at each call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if ours(fd) {
        return open(fd, mode);
    }
    real!(fdopen(fd: c_int, mode: *const c_char) -> *mut FILE)
}

/// fileno(3): for the C library such a stream has none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
    match number_of(stream) {
        Some(fd) => fd,
        None => real!(fileno(stream: *mut FILE) -> c_int),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    match number_of(stream) {
        Some(fd) => fd,
        None => real!(fileno_unlocked(stream: *mut FILE) -> c_int),
    }
}

/// fclose(3) of a stream that the kernel reads and writes: it closes the number past the hooks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    if !stream.is_null() && number_of(stream).is_none() {
        let errno = boundary::errno();
        let fd = real!(fileno(stream: *mut FILE) -> c_int);
        boundary::set_errno(errno);
        if ours(fd) {
            descriptor::forget_stale(fd);
        }
    }
    real!(fclose(stream: *mut FILE) -> c_int)
}

fn cookie(fd: c_int, entry: usize) -> *mut c_void {
    core::ptr::without_provenance_mut(entry << 32 | fd as u32 as usize)
}

fn number(cookie: *mut c_void) -> c_int {
    cookie.addr() as u32 as c_int
}

unsafe extern "C" fn read(cookie: *mut c_void, buffer: *mut c_char, length: size_t) -> ssize_t {
    let fd = number(cookie);
    if let Some(left) = left_in(fd) {
        // SAFETY: the stream is the C library's own, and stays.
        let left = unsafe { &mut *left };
        let count = (left.read_end.addr().saturating_sub(left.read.addr())).min(length);
        if count > 0 {
            // SAFETY: so many bytes lie there unread, and fit into stdio's buffer, which is another one.
            unsafe { core::ptr::copy_nonoverlapping(left.read, buffer, count) };
            left.read = left.read.wrapping_add(count);
            return count as ssize_t;
        }
    }
    // SAFETY: stdio's buffer is good for writes of `length` bytes.
    unsafe { io::read(fd, buffer.cast(), length) }
}

/// "The write function should return the number of bytes copied from buf, or 0 on error" (fopencookie(3)).
unsafe extern "C" fn write(cookie: *mut c_void, buffer: *const c_char, length: size_t) -> ssize_t {
    // SAFETY: stdio's buffer is good for reads of `length` bytes.
    unsafe { io::write(number(cookie), buffer.cast(), length) }.max(0)
}

unsafe extern "C" fn closed(cookie: *mut c_void) -> c_int {
    let entry = cookie.addr() >> 32;
    if let (Some(place), Some(number)) = (STREAMS.get(entry), NUMBERS.get(entry)) {
        give_back(place.load(Ordering::Relaxed));
        place.store(null_mut(), Ordering::Release);
        number.store(-1, Ordering::Release);
    }
    // SAFETY: the stream owns the number.
    unsafe { close(number(cookie)) }
}

/// The beginning of `struct _IO_FILE`, as <bits/types/struct_FILE.h> has it.
#[repr(C)]
struct Beginning {
    flags: c_int,
    read: *mut c_char,
    read_end: *mut c_char,
    read_base: *mut c_char,
    write_base: *mut c_char,
    written: *mut c_char,
}

const UNBUFFERED: c_int = 2;
const LINE_BUFFERED: c_int = 0x200;

/// The C library's own streams for 0, 1 and 2, where ours have taken their place.
static REPLACED: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];

fn standard(fd: c_int) -> Option<*mut *mut FILE> {
    match fd {
        0 => Some(&raw mut stdin),
        1 => Some(&raw mut stdout),
        2 => Some(&raw mut stderr),
        _ => None,
    }
}

/// What was read of stdin before ours took its place.
fn left_in(fd: c_int) -> Option<*mut Beginning> {
    let replaced = if fd == 0 { REPLACED.first()?.load(Ordering::Relaxed) } else { null_mut() };
    (!replaced.is_null()).then(|| replaced.cast())
}

/// A number that the program got by a call which duplicates. A socket under 0, 1 or 2 is stdio's from now on.
pub(crate) fn duplicated(route: Route<c_int>) -> Route<c_int> {
    if let Route::Done(Ok(fd @ 0..=2)) = route
        && descriptor::carries_data(fd)
    {
        replace(fd);
    }
    route
}

#[cold]
fn replace(fd: c_int) {
    let (Some(variable), Some(replaced)) = (standard(fd), REPLACED.get(fd as usize)) else { return };
    // SAFETY: a variable of the C library's, which programs write as well.
    let old = unsafe { variable.read() };
    if old.is_null() || !replaced.load(Ordering::Acquire).is_null() {
        return;
    }
    let new = open(fd, if fd == 0 { c"r".as_ptr() } else { c"w".as_ptr() });
    if new.is_null() {
        return;
    }
    // SAFETY: an open stream begins so.
    let beginning = unsafe { &*old.cast::<Beginning>() };
    let mode = match beginning.flags & (UNBUFFERED | LINE_BUFFERED) {
        0 => libc::_IOFBF,
        LINE_BUFFERED => libc::_IOLBF,
        _ => libc::_IONBF,
    };
    // SAFETY: a fresh stream; the buffer is its own.
    unsafe { libc::setvbuf(new, null_mut(), mode, libc::BUFSIZ as size_t) };
    let waiting = beginning.written.addr().saturating_sub(beginning.write_base.addr());
    if fd != 0 && waiting > 0 {
        // SAFETY: so many bytes wait there to be written; both streams are open.
        unsafe { libc::fwrite(beginning.write_base.cast(), 1, waiting, new) };
        // SAFETY: an open stream.
        unsafe { __fpurge(old) };
    }
    replaced.store(old, Ordering::Release);
    // SAFETY: as above.
    unsafe { variable.write(new) };
}

/// A stream of ours is closed: stdin, stdout or stderr is the C library's own again.
fn give_back(stream: *mut FILE) {
    for (fd, replaced) in (0..).zip(&REPLACED) {
        let Some(variable) = standard(fd) else { continue };
        // SAFETY: a variable of the C library's, which programs write as well.
        if !replaced.load(Ordering::Acquire).is_null() && unsafe { variable.read() } == stream {
            // SAFETY: as above.
            unsafe { variable.write(replaced.swap(null_mut(), Ordering::AcqRel)) };
        }
    }
}
