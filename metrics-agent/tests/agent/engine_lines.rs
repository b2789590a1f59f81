//! The line of each engine in docs/reference/engines.md starts an agent that reads a server of this engine.

use clap::Parser;
use metrics_agent::flags::Flags;

use crate::harness::Agent;
use crate::scripted::{Behaviour, ScriptedServer};

const PAGE: &str = include_str!("../../../docs/reference/engines.md");

/// The extractor that `triton.yaml` does without, in the place of which it has a source.
const EXTRACTOR: &str = "  - type: core-metrics-extractor\n";

/// The first block of this kind.
fn block(kind: &str) -> &'static str {
    let (_, block) = PAGE.split_once(&format!("\n```{kind}\n")).unwrap();
    block.split_once("```\n").unwrap().0
}

/// The metrics of a server with three waiting and two running requests, and whether the engine shows what
/// runs.
fn text(engine: &str) -> (String, bool) {
    let text = match engine {
        "vLLM" => crate::scripted::load(3, 2),
        "SGLang" => "sglang:num_queue_reqs 3\nsglang:num_running_reqs 2\n".to_owned(),
        "TensorRT-LLM" => "trtllm_num_requests_waiting 3\ntrtllm_num_requests_running 2\n".to_owned(),
        "Triton" => "nv_inference_pending_request_count{model=\"a\"} 3\n".to_owned(),
        "llama.cpp" => "llamacpp:requests_deferred 3\nllamacpp:requests_processing 2\n".to_owned(),
        "LMDeploy" => "lmdeploy:num_requests_waiting{engine=\"0\"} 1\nlmdeploy:num_requests_waiting{engine=\"1\"} 2\n\
                       lmdeploy:num_requests_running{engine=\"0\"} 2\nlmdeploy:num_requests_running{engine=\"1\"} 0\n"
            .to_owned(),
        _ => panic!("no text of {engine}"),
    };
    (text, engine != "Triton")
}

#[tokio::test]
async fn the_line_of_each_engine_reads_its_load() {
    let folder = tempfile::tempdir().unwrap();
    let rules = block("yaml");
    let (before, after) = rules.split_once(EXTRACTOR).unwrap();
    let (_, after) = after.split_once("schedulingProfiles:").unwrap();
    let triton = format!(
        "{before}  - {{ type: metrics-data-source, parameters: {{ port: 8002 }} }}\nschedulingProfiles:{after}"
    );
    assert!(PAGE.contains("{ type: metrics-data-source, parameters: { port: 8002 } }"));
    let mut engines = Vec::new();
    for line in block("sh").lines() {
        let (command, comment) = line.split_once('#').unwrap();
        let engine = comment.split_whitespace().next().unwrap();
        let (text, has_running) = text(engine);
        let server = ScriptedServer::start(Behaviour::Text(text)).await;
        let port = server.address().port();
        // Triton serves its metrics at another port than requests.
        let address =
            if engine == "Triton" { "127.0.0.1:1".to_owned() } else { server.address().to_string() };
        std::fs::write(folder.path().join("engines.yaml"), rules).unwrap();
        let triton = triton.replace("8002", &port.to_string());
        std::fs::write(folder.path().join("triton.yaml"), triton).unwrap();
        let arguments = command.split_whitespace().map(|argument| {
            if argument.starts_with("10.0.0.1:") {
                address.clone()
            } else if argument == "engines.yaml" || argument == "triton.yaml" {
                folder.path().join(argument).display().to_string()
            } else {
                argument.to_owned()
            }
        });
        let settings = Flags::try_parse_from(arguments).unwrap().settings().unwrap();
        assert_eq!(settings.scrape.path.path() == "/prometheus/metrics", engine == "TensorRT-LLM");
        let agent = Agent::start(settings).await;
        agent
            .reading_where(engine, |reading| {
                reading.waiting == Some(3) && (reading.running == Some(2)) == has_running
            })
            .await;
        engines.push(engine);
    }
    assert_eq!(engines, ["vLLM", "SGLang", "TensorRT-LLM", "Triton", "llama.cpp", "LMDeploy"]);
}
