//! The name that programs linked against the library ask the loader for: it changes with `DIECUT_ABI_VERSION` only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdiecut.so.1");
}
