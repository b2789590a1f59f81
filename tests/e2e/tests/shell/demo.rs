//! `make run`.

use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::{ModelServer, SERVED_BY};
use rustix::process::Signal;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use tempfile::TempDir;
use tokio::net::TcpStream;

/// The demo on ports that were free just before, and the folder its output goes to.
struct Demo {
    process: Process,
    /// Ports for requests, Envoy's admin interface, and the agent.
    ports: [u16; 3],
    _folder: TempDir,
}

impl Demo {
    fn start(variables: &[(&str, String)]) -> Self {
        // All three are held at the same time, so that they differ.
        let held = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        Self::start_on(held.map(|listener| listener.local_addr().unwrap().port()), variables)
    }

    fn start_on(ports: [u16; 3], variables: &[(&str, String)]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(tools::built("demo", "endpoint-picker-harness").unwrap());
        for (name, port) in ["PORT", "ADMIN_PORT", "AGENT_PORT"].iter().zip(ports) {
            command.env(name, port.to_string());
        }
        command.env_remove("ENDPOINTS").envs(variables.iter().cloned());
        let process = Process::start("demo", command, &folder.path().join("output")).unwrap();
        Self { process, ports, _folder: folder }
    }

    async fn prints(&mut self, text: &str) {
        eventually(&format!("the demo prints {text:?}"), async || {
            let output = self.process.output().map_err(|reason| reason.to_string())?;
            if output.contains(text) { Ok(()) } else { Err(output) }
        })
        .await;
    }

    async fn served_by(&self) -> String {
        let url = format!("http://127.0.0.1:{}/v1/chat/completions", self.ports[0]);
        let response = client::http1().post(url).json(&client::chat("hello")).send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
        response.headers()[SERVED_BY].to_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_names_the_server_and_leaves_nothing_behind_when_interrupted() {
    let mut demo = Demo::start(&[]);
    demo.prints("Ctrl-C stops all of it.").await;
    let served_by = demo.served_by().await;
    assert!(served_by.starts_with("demo-"), "{served_by}");

    demo.process.signal(Signal::INT);
    demo.prints("Stopped.").await;
    eventually("the demo has ended", async || match demo.process.check_running() {
        Ok(()) => Err("it runs"),
        Err(_) => Ok(()),
    })
    .await;
    for port in demo.ports {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        assert!(TcpStream::connect(address).await.is_err(), "a program listens on {address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_takes_the_users_own_model_servers_by_host_name() {
    let server = ModelServer::start().unwrap();
    let mut demo = Demo::start(&[("ENDPOINTS", format!("localhost:{}", server.address().port()))]);
    demo.prints("Ctrl-C stops all of it.").await;
    assert_eq!(demo.served_by().await, server.endpoint());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_without_an_agent() {
    let mut demo = Demo::start(&[("AGENT", "off".to_owned()), ("RULES", "epp".to_owned())]);
    demo.prints("Ctrl-C stops all of it.").await;
    assert!(demo.served_by().await.starts_with("demo-"));
    assert!(TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], demo.ports[2]))).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_reported_with_the_way_to_choose_another() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut demo = Demo::start_on([port, 1, 1], &[]);
    demo.prints(&format!("port {port} cannot be used; choose another with `make run PORT=")).await;
}
