//! Lets tests and benches offer their mock of Envoy to the module as Envoy does: by the executable's exported symbols.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-tests=-rdynamic");
    println!("cargo::rustc-link-arg-benches=-rdynamic");
}
