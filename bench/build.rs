//! Compiles the rivals: C programs that do the same work without the framework.

fn main() {
    println!("cargo::rerun-if-changed=c");
    cc::Build::new()
        .files(["c/macswap.c", "c/xsk_echo.c"])
        .opt_level(3)
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("rivals");
}
