//! `make epp-drift`: the names of a checkout of llm-d-router, compared with the catalogue and with an older
//! checkout.

use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

/// Go sources in the form of the EPP's: a folder of a plugin, and one that registers it.
fn write_checkout(folder: &Path, plugin: &str, type_name: &str, parameters: &str) {
    let write = |path: &str, text: String| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "pkg/epp/plugins/queue/plugin.go",
        format!(
            "package queue\n\nconst QueueType = \"{type_name}\"\nconst Gate = \"someGate\"\nconst defaultMost = 7\n\n\
             type Parameters struct {{\n{parameters}}}\n\nconst header = \"x-llm-d-{plugin}\"\n"
        ),
    );
    write("pkg/epp/plugins/queue/plugin_test.go", "const QueueType = \"of-a-test\"\n".to_owned());
    write(
        "cmd/epp/runner.go",
        format!(
            "package main\n\nimport (\n\t\"example.com/epp/pkg/epp/plugins/queue\"\n)\n\nfunc main() {{\n\
             \tfwkplugin.Register(queue.QueueType, fwkplugin.StabilityBeta, queue.Factory)\n\
             \tloader.RegisterFeatureGate(queue.Gate, false)\n\
             \tfs.IntVar(&opts.Port, \"{plugin}-port\", 9002, \"text\")\n\
             \tprometheus.NewCounter(prometheus.CounterOpts{{\n\t\tName: \"{plugin}_total\",\n\t}})\n}}\n"
        ),
    );
}

fn drift(folders: &[&Path]) -> Output {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/check/epp-drift");
    let mut command = Command::new("python3");
    command.arg(tool).arg(env!("CARGO_BIN_EXE_metrics-agent")).args(folders);
    command.output().expect("python3 runs the tool")
}

#[test]
fn differences_between_checkouts_and_types_that_the_catalogue_lacks_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let (older, newer) = (folder.path().join("older"), folder.path().join("newer"));
    write_checkout(&older, "old", "queue-scorer", "\tMost int `json:\"mostWanted\"`\n");
    let parameters = "\tMost int `json:\"mostWanted\"`\n\tName string `json:\"name,omitempty\"`\n";
    write_checkout(&newer, "new", "never-seen-scorer", parameters);

    let output = drift(&[&older]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "type queue-scorer: accepted",
            "catalogue: parameter queue-scorer.mostWanted: not in the catalogue",
            "catalogue: gate someGate: unknown feature gate \"someGate\"; allowed are flowControl, haPopulateNonLeaderDatastore",
            "catalogue: flag old-port: not in the catalogue",
            "catalogue: header x-llm-d-old: not in the catalogue",
            "catalogue: metric old_total: not in the catalogue",
            "1 types, 1 parameters, 1 gates, 1 flags, 1 headers, 1 metrics"
        ]
    );

    let output = drift(&[&newer, &older]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success(), "{text}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "the catalogue lacks never-seen-scorer\n");
    for line in [
        "drift: flag new-port absent -> 9002",
        "drift: flag old-port 9002 -> absent",
        "drift: header x-llm-d-new absent -> there",
        "drift: metric old_total there -> absent",
        "drift: parameter never-seen-scorer.mostWanted absent -> 7",
        "drift: parameter never-seen-scorer.name absent -> zero string",
        "drift: type never-seen-scorer absent -> beta",
        "drift: type queue-scorer beta -> absent",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_name_of_the_catalogue_with_another_default_is_listed_and_one_with_the_same_is_not() {
    let folder = tempfile::tempdir().unwrap();
    for (name, parameter, default, expected) in [
        (
            "load-aware-scorer",
            "threshold",
            "7",
            vec!["catalogue: parameter load-aware-scorer.threshold: 7, here 128"],
        ),
        ("load-aware-scorer", "threshold", "128", vec![]),
        ("latency-scorer", "tpotWeight", "0.20", vec![]),
        (
            "concurrency-detector",
            "concurrencyMode",
            "\"tokens\"",
            vec!["catalogue: parameter concurrency-detector.concurrencyMode: tokens, here requests"],
        ),
    ] {
        write_checkout(folder.path(), "old", name, &format!("\tMost int `json:\"{parameter}\"`\n"));
        let plugin = folder.path().join("pkg/epp/plugins/queue/plugin.go");
        let text = fs::read_to_string(&plugin)
            .unwrap()
            .replace("defaultMost = 7", &format!("defaultMost = {default}"));
        fs::write(&plugin, text).unwrap();
        let output = drift(&[folder.path()]);
        let text = String::from_utf8(output.stdout).unwrap();
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("catalogue: parameter")).collect();
        assert_eq!(found, expected, "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}
