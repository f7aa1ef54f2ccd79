//! Generates the messages and services of kubelet's interfaces.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    for name in ["device_plugin", "dra", "dra_health", "plugin_registration"] {
        // A folder for each: two of them say `package v1`.
        let folder = out.join(name);
        std::fs::create_dir_all(&folder)?;
        let file = format!("proto/{name}.proto");
        println!("cargo::rerun-if-changed={file}");
        let descriptors = protox::compile([file], ["."])?;
        tonic_prost_build::configure().out_dir(folder).compile_fds(descriptors)?;
    }
    Ok(())
}
