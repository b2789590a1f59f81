//! Files and directories, and files that are not manifests.

use std::fmt::Write;
use std::path::Path;

use metrics_agent_catalogue::Plan;
use metrics_agent_sources::manifests;

use crate::reading::{options, refusal};

#[test]
fn hostile_texts_are_refused_briefly() {
    let deep = "[".repeat(100_000);
    let mut bomb = "a0: &a0 [x]\n".to_owned();
    for i in 1..30 {
        let nine = vec![format!("*a{}", i - 1); 9].join(",");
        writeln!(bomb, "a{i}: &a{i} [{nine}]").unwrap();
    }
    let many = "a: b\n---\n".repeat(5000);
    let long = format!("apiVersion: {}\nkind: InferencePool", "x".repeat(100_000));
    for text in ["\0", "a: [", "a: b\na: c", &deep, &bomb, &many, &long] {
        let refusal = refusal(text);
        assert!(!refusal.is_empty() && refusal.len() < 20_000, "{} bytes", refusal.len());
    }
    let not_text = manifests::File { path: Path::new("m.yaml").into(), bytes: b"a: \xff".to_vec() };
    assert!(Plan::read(&[not_text], &options()).is_err());
}

#[test]
fn files_are_counted_and_measured() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let refusal = || manifests::read(path).unwrap_err().to_string();
    assert!(refusal().contains("has no .yaml, .yml or .json file"), "{}", refusal());
    std::fs::write(path.join("big.yaml"), vec![b'#'; 4 * 1024 * 1024 + 1]).unwrap();
    assert!(refusal().ends_with("big.yaml: is larger than the allowed 4194304 bytes"), "{}", refusal());
    for index in 0..5 {
        std::fs::write(path.join(format!("{index}.yaml")), vec![b'#'; 1024 * 1024]).unwrap();
    }
    std::fs::remove_file(path.join("big.yaml")).unwrap();
    assert!(refusal().contains("has 5242880 bytes; allowed are 4194304"), "{}", refusal());
    for index in 0..257 {
        std::fs::write(path.join(format!("{index}.yaml")), "").unwrap();
    }
    assert!(refusal().contains("has more than the allowed 256 files"), "{}", refusal());
    let absent = manifests::read(&path.join("absent")).unwrap_err().to_string();
    assert!(absent.contains("absent: cannot be read: "), "{absent}");
}

#[test]
fn manifests_of_a_directory_are_read_in_the_order_of_their_names_without_other_files() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["b.yml", "a.yaml", "c.json", "d.txt", ".hidden.yaml"] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    std::fs::create_dir(directory.path().join("e.yaml")).unwrap();
    let files = manifests::read(directory.path()).unwrap();
    let names: Vec<_> = files.iter().map(|file| file.path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a.yaml", "b.yml", "c.json"]);
}
