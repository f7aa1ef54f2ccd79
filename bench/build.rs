//! Compiles the rivals: the same work written by hand in C.

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
