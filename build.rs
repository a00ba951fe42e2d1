//! Generates `rdma/rsocket.h` from the C API in `core/src/capi`, into OUT_DIR: `tests/header.rs` compares it with the one
//! in `include/`. With RSOCKET_WRITE_HEADER set, it is written there too.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

/// In the header's order.
const FAMILIES: [&str; 8] = ["socket", "io", "iomap", "poll", "select", "epoll", "option", "descriptor"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cbindgen.toml");
    println!("cargo:rerun-if-env-changed=RSOCKET_WRITE_HEADER");
    let mut builder = cbindgen::Builder::new().with_config(cbindgen::Config::from_file("cbindgen.toml")?);
    for family in FAMILIES {
        let source = PathBuf::from(format!("core/src/capi/{family}.rs"));
        println!("cargo:rerun-if-changed={}", source.display());
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder.generate()?.write(&mut header);
    fs::write(Path::new(&env::var("OUT_DIR")?).join("rsocket.h"), &header)?;
    if env::var_os("RSOCKET_WRITE_HEADER").is_some() {
        fs::create_dir_all("include/rdma")?;
        fs::write("include/rdma/rsocket.h", &header)?;
    }
    Ok(())
}
