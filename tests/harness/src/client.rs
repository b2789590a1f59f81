//! HTTP clients and requests.

use crate::eventually::SOON;
use anyhow::{Context, Result};
use endpoint_picker_model_server::MODEL;
use reqwest::{Client, ClientBuilder};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any response takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP/1.1 client with a new connection for each request, so that requests spread over Envoy's workers.
pub fn http1() -> Client {
    build(Client::builder().pool_max_idle_per_host(0).http1_only())
}

/// An HTTP/1.1 client that keeps its connections.
pub fn http1_keep_alive() -> Client {
    build(Client::builder().http1_only())
}

/// An HTTP/2 client that needs no upgrade (h2c); its requests share a connection.
pub fn h2c() -> Client {
    build(Client::builder().http2_prior_knowledge())
}

fn build(client: ClientBuilder) -> Client {
    client.no_proxy().timeout(TIMEOUT).build().expect("these options are valid")
}

/// A chat request with one user message.
pub fn chat(prompt: &str) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": prompt}]})
}

/// A text completion request.
pub fn completion(prompt: &str) -> Value {
    json!({"model": MODEL, "prompt": prompt})
}

/// How a raw client behaves after its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Closes its sending side, and reads on.
    HalfClose,
    /// Keeps its sending side open.
    KeepOpen,
}

/// Sends these bytes and returns everything that comes back until Envoy closes the connection.
///
/// Bytes that Envoy does not read are not an error; a connection still open after [`SOON`] is.
pub async fn raw(address: SocketAddr, bytes: &[u8], ending: Ending) -> Result<String> {
    let exchange = async {
        let (mut reader, mut writer) = TcpStream::connect(address).await?.into_split();
        let send = async {
            // Envoy may respond and close before it has read everything.
            let _ = writer.write_all(bytes).await;
            if ending == Ending::HalfClose {
                let _ = writer.shutdown().await;
            }
            writer
        };
        let mut answer = Vec::new();
        let receive = async {
            // After a reset the bytes that came before it count.
            let _ = reader.read_to_end(&mut answer).await;
        };
        let (_writer, ()) = tokio::join!(send, receive);
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(SOON, exchange)
        .await
        .with_context(|| format!("the connection is still open after {SOON:?}"))?
}
