//! Images and their bills of materials.

use std::path::Path;
use std::process::Command;

use fastlane_tests::repository;
use serde_json::Value;

/// Packs a file into an image and returns the archive.
#[track_caller]
fn packed(folder: &Path, name: &str, content: &str) -> Vec<u8> {
    let (file, image) = (folder.join(name), folder.join(format!("{name}.tar")));
    std::fs::write(&file, content).expect("the folder is ours");
    let mut command = Command::new(repository("k8s/image"));
    command.arg(&image).args(["localhost/x:1", "--entrypoint", "/bin/x", "tmp/"]);
    command.arg(format!("bin/x={}", file.display())).args(["--link", "bin/y=x"]);
    assert!(command.status().is_ok_and(|status| status.success()), "{command:?}");
    std::fs::read(image).expect("the archive")
}

#[test]
fn equal_files_make_equal_images() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let image = packed(folder.path(), "a", "program");
    // Another name, another time.
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(image == packed(folder.path(), "b", "program"), "they differ");
    assert!(image != packed(folder.path(), "c", "another"), "they are equal");
}

#[test]
fn a_bill_of_materials_has_what_is_linked_and_nothing_else() {
    let output = Command::new(repository("k8s/sbom"))
        .args(["agent", "fastlane-cli"])
        .output()
        .expect("python3 is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let bill: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(bill["spdxVersion"], "SPDX-2.3");
    let packages = bill["packages"].as_array().expect("a list");
    let has = |name: &str| packages.iter().any(|package| package["name"] == name);
    for linked in ["fastlane-cli", "fastlane-kubernetes", "tonic", "prost", "rustls", "libc"] {
        assert!(has(linked), "{linked} is missing");
    }
    // Tests and the build have them.
    for other in ["proptest", "protox", "fastlane-testing", "upf"] {
        assert!(!has(other), "{other} is in it");
    }
    let unlicensed = packages.iter().find(|package| package["licenseDeclared"] == "NOASSERTION");
    assert_eq!(unlicensed, None);
}
