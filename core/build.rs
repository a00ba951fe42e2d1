//! Link flags of librsocket.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // What a program that was linked by path looks for at run time is the name, not the path.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librsocket.so");
    // The library's thread and fork handlers stay until the process ends.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
