//! The deployments among the examples: their commands are the agent's, and what one program writes the other
//! reads.

use clap::Parser;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::tools;
use metrics_agent::agent::Settings;
use metrics_agent::flags::{Command as Subcommand, Flags};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const EDS_FILE: &str = "target/run/model-servers.yaml";

fn settings<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Settings {
    let arguments = ["metrics-agent"].into_iter().chain(arguments);
    Flags::try_parse_from(arguments).unwrap().settings().unwrap()
}

/// Hosts and ports of the settings.
fn named_servers(settings: &Settings) -> BTreeSet<(&str, u16)> {
    let named = settings.sources.fixed.named.iter();
    named.filter_map(|server| Some((server.host.as_str(), server.port?.get()))).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

#[test]
fn the_programs_of_the_compose_file_find_one_another() {
    let text = fs::read_to_string(tools::root().join("examples/compose/compose.yaml")).unwrap();
    let compose: Value = serde_saphyr::from_str(&text).unwrap();
    let service = |name: &str| &compose["services"][name];

    // The agent scrapes the servers of the file, and writes where Envoy reads.
    let settings = settings(texts(&service("agent")["command"]));
    let servers = ["vllm-1", "vllm-2", "vllm-3"].map(|name| (name, 8000));
    assert_eq!(named_servers(&settings), servers.into());
    for (name, _) in servers {
        let source = service(name)["extends"]["service"].as_str().unwrap_or(name);
        let command = texts(&service(source)["command"]);
        assert!(command.windows(2).any(|pair| pair == ["--port", "8000"]), "{name}: {command:?}");
    }
    let health = texts(&service("agent")["healthcheck"]["test"]);
    let flags = Flags::try_parse_from(health[1..].iter()).unwrap();
    assert!(health[0] == "CMD" && matches!(flags.command, Some(Subcommand::Snapshot { .. })), "{health:?}");

    // Both run in Envoy's public image, the agent as the archive's program. Envoy is in the agent's network,
    // so the agent publishes its port.
    let archive = concat!("/opt/endpoint-picker/", env!("CARGO_PKG_VERSION"));
    assert_eq!(service("agent")["image"], service("envoy")["image"]);
    assert_eq!(texts(&service("agent")["entrypoint"]), [format!("{archive}/metrics-agent")]);
    assert_eq!(health[1], format!("{archive}/metrics-agent"));
    assert_eq!(service("envoy")["network_mode"], "service:agent");
    assert_eq!(texts(&service("agent")["ports"]), ["10000:10000"]);
    let eds = settings.eds.unwrap();
    assert_eq!(eds.cluster, "model-servers");
    let folder = eds.path.parent().unwrap().display();
    let shared = [format!(".:{archive}:ro"), format!("endpoints:{folder}")];
    assert_eq!(texts(&service("agent")["volumes"]), shared);
    let config = texts(&service("envoy")["command"])[1];
    for form in [Filter::Wasm, Filter::Native] {
        let mounts: Vec<_> = texts(&service("envoy")["volumes"])
            .iter()
            .map(|mount| mount.replace("${FORM:-wasm}", &form.to_string()))
            .collect();
        // `make dist` changes the paths of the example's configuration to these folders.
        let expected = [
            format!("./examples/compose-{form}.yaml:{config}:ro"),
            format!(".:{archive}:ro"),
            format!("endpoints:{folder}:ro"),
        ];
        assert_eq!(mounts, expected);
        let mut config = Config::converted("examples/compose", form).unwrap();
        let config = config.document().to_string();
        for needed in [EDS_FILE, form.shipped_path(), r#""address":"0.0.0.0","port_value":10000"#] {
            assert!(config.contains(needed), "{form}: {config} lacks {needed}");
        }
    }
}

#[test]
fn systemd_accepts_the_unit_and_the_agent_its_flags() {
    let unit = fs::read_to_string(tools::root().join("examples/systemd/metrics-agent.service")).unwrap();
    let joined = unit.replace("\\\n", "");
    let command = joined.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let (program, arguments) = command.split_once(' ').unwrap();
    let settings = settings(arguments.split_whitespace());
    assert_eq!(named_servers(&settings).len(), 3);
    let directory = joined.lines().find_map(|line| line.strip_prefix("RuntimeDirectory=")).unwrap();
    let eds = settings.eds.unwrap();
    assert_eq!(eds.path.parent().unwrap(), Path::new("/run").join(directory));

    // systemd wants to find the program.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("metrics-agent.service");
    let agent = tools::metrics_agent().unwrap();
    fs::write(&file, unit.replace(program, agent.to_str().unwrap())).unwrap();
    let mut verify = Command::new("systemd-analyze");
    let verified = verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&file).output();
    let verified = verified.expect("systemd-analyze, which `make test-tools` installs");
    let output = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !output.contains("metrics-agent.service"), "{output}");
}
