//! Link flags of librspreload.so.
//!
//! It has no soname: it is named by path in LD_PRELOAD and never linked against.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Hooks, fork handlers and the library's thread stay until the process ends.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // No symbol is looked up inside a hook: the loader's lock may be held, or the stack be a signal handler's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
}
