//! A real store: Redis or Valkey.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::eventually;

/// A store on a port of its own, without anything on disk. It ends when it is dropped.
pub(super) struct Store {
    address: SocketAddr,
    arguments: Vec<String>,
    folder: TempDir,
    process: Child,
}

impl Store {
    /// Starts a store with further flags.
    pub(super) async fn start(flags: &[&str]) -> Self {
        let address = free_address();
        let port = ["--port", &address.port().to_string()].map(str::to_owned);
        let store = Self::spawn(address, [&port[..], &owned(flags)].concat());
        store.answers().await;
        store
    }

    /// Starts a store that speaks TLS and nothing else.
    pub(super) async fn start_secured(certificate: &Path, key: &Path, flags: &[&str]) -> Self {
        let address = free_address();
        let port = address.port().to_string();
        let paths = [certificate, key].map(|path| path.to_str().unwrap());
        let tls =
            ["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no", "--tls-cert-file", paths[0]];
        let arguments = [&owned(&tls)[..], &owned(&["--tls-key-file", paths[1]]), &owned(flags)].concat();
        let store = Self::spawn(address, arguments);
        eventually("the store listens", async || TcpStream::connect(address).await.ok()).await;
        store
    }

    /// Starts a sentinel of this service, whose primary is at `primary`.
    pub(super) async fn start_sentinel(service: &str, primary: SocketAddr) -> Self {
        let address = free_address();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let config = format!(
            "port {}\nbind 127.0.0.1\nsentinel monitor {service} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {service} 500\nsentinel failover-timeout {service} 2000\n",
            address.port(),
            primary.port()
        );
        std::fs::write(&file, config).unwrap();
        let arguments = owned(&[file.to_str().unwrap(), "--sentinel"]);
        let process = run(&arguments, &folder);
        let store = Self { address, arguments, folder, process };
        store.answers().await;
        store
    }

    fn spawn(address: SocketAddr, arguments: Vec<String>) -> Self {
        let common = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"];
        let arguments = [owned(&common), arguments].concat();
        let folder = tempfile::tempdir().unwrap();
        let process = run(&arguments, &folder);
        Self { address, arguments, folder, process }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts again, empty.
    pub(super) async fn restart(&mut self) {
        self.process = run(&self.arguments, &self.folder);
        self.answers().await;
    }

    /// Stops the process, or continues it. While it is stopped, connections stay, and no command gets a
    /// response.
    pub(super) fn set_stopped(&self, is_stopped: bool) {
        let signal = if is_stopped { "-STOP" } else { "-CONT" };
        let kill = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(kill.success());
    }

    async fn answers(&self) {
        eventually("the store answers", async || {
            let mut stream = TcpStream::connect(self.address).await.ok()?;
            stream.write_all(b"PING\r\n").await.ok()?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).await.ok()?;
            Some(())
        })
        .await;
    }

    /// Adds an entry with one field to a stream, under this number.
    pub(super) async fn add(&self, stream: &str, id: &str, field: &str, value: &[u8]) {
        let mut command = b"*5\r\n".to_vec();
        for argument in [b"XADD", stream.as_bytes(), id.as_bytes(), field.as_bytes(), value] {
            command.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            command.extend_from_slice(argument);
            command.extend_from_slice(b"\r\n");
        }
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(&command).await.unwrap();
        let mut answer = [0; 1];
        connection.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"$", "the number of the entry");
    }

    /// Sends a command without spaces in its arguments, and returns the beginning of the response.
    pub(super) async fn command(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may have ended. A stopped process ends with this signal, too.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address that is free now, on this host.
pub(super) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}

fn run(arguments: &[String], folder: &TempDir) -> Child {
    let program = ["valkey-server", "redis-server"].into_iter().find(|program| {
        Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    let program = program.expect("redis-server or valkey-server is on PATH: run `make test-tools`");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder.path()).stdout(Stdio::null()).spawn().unwrap()
}
