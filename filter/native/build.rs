//! Lets tests and benches offer their mock of Envoy to the module as Envoy does: by the executable's exported
//! symbols.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The benches `trace` and `training` call the hooks of a module that is loaded with them.
    println!("cargo::rustc-link-arg-benches=-Wl,--unresolved-symbols=ignore-all");
    // Not all symbols: the linker would keep the module's hooks in tests that have no mock, and miss Envoy's
    // functions.
    for kind in ["tests", "benches"] {
        println!("cargo::rustc-link-arg-{kind}=-Wl,--export-dynamic-symbol=envoy_dynamic_module_callback_*");
    }
}
