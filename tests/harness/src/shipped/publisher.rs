//! Values that only a person can fill in before a release.

use crate::tools;
use std::fs;
use std::process::{Command, Output};

/// The check of `make release` of a file with these values.
fn check(address: &str, contact: &str, public_key: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("publisher.toml");
    let text = format!("address = {address:?}\ncontact = {contact:?}\npublic-key = {public_key:?}\n");
    fs::write(&file, text).unwrap();
    let script = tools::root().join("tools/release/publisher.py");
    Command::new("python3").arg(script).arg(&file).output().unwrap()
}

#[test]
fn a_release_has_an_address_a_contact_and_a_public_key_and_all_files_the_same_address() {
    let cargo = fs::read_to_string(tools::root().join("Cargo.toml")).unwrap();
    let address = cargo.lines().find_map(|line| line.strip_prefix("repository = \"")).unwrap();
    let address = address.trim_end_matches('"');
    let key = format!("RW{}", "a".repeat(54));
    let filled = check(address, "security@example.org", &key);
    assert_eq!(String::from_utf8(filled.stdout).unwrap(), format!("{key}\n"), "{:?}", filled.stderr);
    for (values, faults) in [
        (["", "", ""], &["address is ''", "contact is ''", "public-key is ''"][..]),
        ([address, "nobody", &key], &["contact is 'nobody'"]),
        ([address, "security@example.org", "RWshort"], &["public-key is 'RWshort'"]),
        (
            ["https://elsewhere.example", "security@example.org", &key],
            &["Cargo.toml does not have the address", "Chart.yaml does not have the address"],
        ),
    ] {
        let refused = check(values[0], values[1], values[2]);
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && faults.iter().all(|fault| text.contains(fault)), "{text}");
    }
}
