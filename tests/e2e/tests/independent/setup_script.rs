//! The setup scripts on a machine that has few programs on its PATH.

use endpoint_picker_harness::tools;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A PATH with a shell, its usual helpers, a compiler and Python, without Node.js, Chromium, promtool and Go.
struct Machine {
    path: TempDir,
}

impl Machine {
    /// `user` is the numeric id of the user, 0 for root.
    fn new(user: u32) -> Self {
        let machine = Self { path: tempfile::tempdir().unwrap() };
        for program in ["sh", "dirname", "cc", "cargo", "cmp", "cat"] {
            symlink(found(program), machine.path.path().join(program)).unwrap();
        }
        machine.add("python3", "");
        machine.add("id", &format!("echo {user}"));
        machine
    }

    /// Adds a program that runs these lines of shell.
    fn add(&self, name: &str, lines: &str) {
        let program = self.path.path().join(name);
        fs::write(&program, format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a program of a folder that looks like a fresh clone.
    fn run(&self, clone: &Path, program: &str, arguments: &[&str]) -> (Output, String) {
        let mut command = Command::new(clone.join(program));
        let output =
            command.args(arguments).env("PATH", self.path.path()).current_dir(clone).output().unwrap();
        let printed =
            String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
        (output, printed)
    }
}

/// A program of this machine.
fn found(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(program));
    files.find(|file| file.is_file()).unwrap_or_else(|| panic!("no {program} on PATH"))
}

/// The set-up's scripts in a folder of their own, which has no `.tools`.
fn fresh_clone() -> TempDir {
    let clone = tempfile::tempdir().unwrap();
    fs::create_dir_all(clone.path().join("tools/setup")).unwrap();
    for script in ["tools/setup/tests", "tools/setup/debian", "tools/setup/rust"] {
        symlink(tools::root().join(script), clone.path().join(script)).unwrap();
    }
    clone
}

#[test]
fn a_user_gets_the_one_command_that_installs_the_missing_packages_and_nothing_is_installed() {
    let (machine, clone) = (Machine::new(1000), fresh_clone());
    machine.add("apt-get", "echo apt-get was called; exit 1");
    let (output, printed) = machine.run(clone.path(), "tools/setup/tests", &[]);
    assert!(!output.status.success(), "{printed}");
    let command = "    sudo apt-get install -y --no-install-recommends nodejs npm chromium chromium-driver redis-server systemd prometheus\n";
    assert!(printed.contains(command), "{printed}");
    assert!(!printed.contains("was called"), "{printed}");
    assert!(
        !clone.path().join(".tools").exists(),
        "a tool was installed before all missing ones were reported"
    );
}

#[test]
fn for_root_the_packages_are_installed() {
    let (machine, clone) = (Machine::new(0), fresh_clone());
    machine.add("apt-get", r#"echo "apt-get $*""#);
    let (output, printed) =
        machine.run(clone.path(), "tools/setup/debian", &["cc", "chromium", "chromedriver", "wrk"]);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("apt-get update"), "{printed}");
    let install = "apt-get install -y -qq --no-install-recommends chromium chromium-driver wrk\n";
    assert!(printed.ends_with(install), "{printed}");
}

#[test]
fn without_apt_the_missing_packages_are_named() {
    let (machine, clone) = (Machine::new(0), fresh_clone());
    let (output, printed) = machine.run(clone.path(), "tools/setup/tests", &[]);
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("missing programs"), "{printed}");
    assert!(
        printed.contains(" nodejs npm chromium chromium-driver redis-server systemd prometheus\n"),
        "{printed}"
    );
}

#[test]
fn a_machine_with_all_programs_needs_nothing() {
    let (machine, clone) = (Machine::new(1000), fresh_clone());
    for program in ["chromium", "chromedriver"] {
        machine.add(program, "");
    }
    let (output, printed) =
        machine.run(clone.path(), "tools/setup/debian", &["cc", "chromium", "chromedriver"]);
    assert!(output.status.success() && printed.is_empty(), "{printed}");
}
