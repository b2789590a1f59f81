//! Stored responses and conversations as OpenAI's SDK names them.

use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn openais_sdk_finds_its_responses_among_three_servers() {
    let stack = Stack::builder().servers(3).workers(2).start().await;
    let logs = RunDir::new().unwrap();
    let mut python = Command::new(tools::openai_python().unwrap());
    python.arg(tools::root().join("tests/openai/stored.py")).arg(stack.url("/v1"));
    let mut python = Process::start("openai-python", python, &logs.path().join("log")).unwrap();
    let status = eventually("the SDK has sent all requests", async || {
        python.exit_status()?.ok_or_else(|| anyhow::anyhow!("it runs"))
    })
    .await;
    assert!(status.success(), "{}", python.output().unwrap());
}
