//! The Envoys of docs/install/envoy.md, and those that are installable.

use crate::tools;
use std::fs;
use std::process::Command;

/// The output of `tools/test/envoys` for these versions of its package.
fn newer(installable: &[&str]) -> String {
    let mut command = Command::new(tools::root().join("tools/test/envoys"));
    let output = command.arg("newer").args(installable).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn newer_patches_and_minor_versions_than_the_tested_ones_are_reported() {
    assert_eq!(newer(&["1.36.99", "1.37.0", "1.38.3", "1.39.3", "1.40.0", "1.36.2.post1"]), "");
    for (found, than) in [("1.38.4", "1.38.3"), ("1.39.10", "1.39.3"), ("1.41.0", "1.40.0")] {
        let line = format!("envoys: the package has Envoy {found}, newer than {than}: test with it\n");
        assert_eq!(newer(&["1.37.0", found]), line);
    }
}

#[test]
fn the_table_begins_with_the_oldest_envoy_that_is_accepted_and_no_patch_is_older_than_a_tested_one() {
    let page = fs::read_to_string(tools::root().join("docs/install/envoy.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| 1."))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let setup = fs::read_to_string(tools::root().join("tools/setup/build")).unwrap();
    assert!(setup.contains(&format!("\noldest_envoy={} ", rows[0][1])), "{:?}", rows[0]);
    let patch = |version: &str| version.rsplit('.').next().unwrap().parse::<u32>().unwrap();
    for row in &rows {
        assert!(row[2].starts_with(&format!("{}.", row[1])), "{row:?}");
        for tested in row[3].split(", ") {
            let tested = tested.split(' ').next().unwrap();
            assert!(patch(tested) <= patch(row[2]), "{row:?}");
        }
    }
    assert!(rows.len() >= 4, "{rows:?}");
}
