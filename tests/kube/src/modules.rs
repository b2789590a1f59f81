//! Serves the built wasm module over HTTP, as a web server of a user would.

use crate::namespace::HOST_ADDRESS;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::Filter;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct Modules {
    address: SocketAddr,
    module: PathBuf,
    _server: AbortOnDropHandle<()>,
}

impl Modules {
    /// Serves the module, as it is now, at every path.
    pub(crate) async fn serve() -> Result<Self> {
        let module = Filter::Wasm.module()?;
        let bytes = Bytes::from(tokio::fs::read(&module).await?);
        let listener = TcpListener::bind((HOST_ADDRESS, 0)).await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let bytes = bytes.clone();
                let answer = service_fn(move |_: Request<Incoming>| {
                    let answer = Response::new(Full::new(bytes.clone()));
                    async move { Ok::<_, Infallible>(answer) }
                });
                // A client that goes away does not matter to the server.
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer),
                );
            }
        });
        Ok(Self { address, module, _server: AbortOnDropHandle::new(server) })
    }

    /// Where it serves the module.
    pub fn url(&self) -> String {
        format!("http://{}/plugin.wasm", self.address)
    }

    /// The module's SHA-256 sum, in hexadecimal.
    pub async fn sha256(&self) -> Result<String> {
        let output = Command::new("sha256sum").arg(&self.module).output().await.context("start sha256sum")?;
        ensure!(output.status.success(), "sha256sum: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        Ok(text.split_whitespace().next().context("sha256sum printed nothing")?.to_owned())
    }
}
