//! Connections, and the effect of a scripted behaviour on them.

use super::answer;
use super::body::{self, Body};
use super::echo;
use super::request::{Behaviour, Failure, ReceivedRequest};
use super::state::{State, lock};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use socket2::SockRef;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Ends the connection without a response.
#[derive(Debug)]
struct NoAnswer;

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("scripted to give no answer")
    }
}

impl std::error::Error for NoAnswer {}

/// A connection that a script may end.
#[derive(Clone, Debug)]
struct Connection {
    socket: Arc<OwnedFd>,
    end: CancellationToken,
}

impl Connection {
    /// Has the connection end with RST in place of FIN.
    fn end_with_reset(&self) {
        // Closing with a linger time of zero sends RST. Should it fail, the client sees a plain end.
        let _ = SockRef::from(&*self.socket).set_linger(Some(Duration::ZERO));
    }
}

/// Serves until dropped; its connections end with it.
pub(crate) async fn accept(listener: TcpListener, shared: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        // A connection that was closed before it was accepted, or a moment without descriptors: neither ends
        // the server.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        connections.spawn(serve(stream, shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, shared: Arc<State>) {
    // A second handle on the socket, kept longer than the server's own: the last handle to close decides
    // between FIN and RST.
    let Ok(socket) = stream.as_fd().try_clone_to_owned() else { return };
    let socket = Arc::new(socket);
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let connection = Connection { socket, end: CancellationToken::new() };
    let service = {
        let connection = connection.clone();
        service_fn(move |request| handle(request, shared.clone(), connection.clone()))
    };
    let builder = auto::Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    // The client or the script has ended the connection; the test sees that from the other side.
    let _ = connection.end.run_until_cancelled(serving).await;
}

async fn handle(
    request: Request<Incoming>,
    shared: Arc<State>,
    connection: Connection,
) -> Result<Response<Body>, NoAnswer> {
    let is_scrape = request.uri().path() == "/metrics";
    if !is_scrape && *lock(&shared.behaviour) == Behaviour::Echo {
        lock(&shared.requests).push(ReceivedRequest {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
            body: Bytes::new(),
        });
        return Ok(echo::answer(&shared.name, request));
    }
    let (head, incoming) = request.into_parts();
    // A request that never came whole is not a request received.
    let Ok(whole) = incoming.collect().await else { return Err(NoAnswer) };
    let mut request = ReceivedRequest {
        method: head.method,
        uri: head.uri,
        version: head.version,
        headers: head.headers,
        body: whole.to_bytes(),
    };
    let behaviour = if is_scrape {
        let program = request.header("user-agent").unwrap_or_default().to_owned();
        *lock(&shared.scrapes).entry(program).or_default() += 1;
        *lock(&shared.scrape_behaviour)
    } else {
        lock(&shared.requests).push(request.clone());
        request.behaviour().unwrap_or(*lock(&shared.behaviour))
    };
    let pause = match behaviour {
        Behaviour::Answer | Behaviour::Echo => Duration::ZERO,
        Behaviour::Complete => {
            if !answer::is_known(&request) {
                let is_chat = request.uri.path().ends_with("/chat/completions");
                request.uri =
                    Uri::from_static(if is_chat { "/v1/chat/completions" } else { "/v1/completions" });
            }
            Duration::ZERO
        }
        Behaviour::ErrorEvent if request.body.is_empty() => Duration::ZERO,
        Behaviour::ErrorEvent => {
            let error = r#"{"error":{"message":"scripted to fail","type":"InternalServerError","code":500}}"#;
            let events = format!("data: {error}\n\ndata: [DONE]\n\n");
            return Ok(body::body("text/event-stream; charset=utf-8", events));
        }
        Behaviour::Pieces(size, pause) => {
            let response = if is_scrape {
                answer::metrics(&shared)
            } else {
                answer::answer(shared, request, Duration::ZERO).await
            };
            return Ok(response.map(|whole| body::cut(whole, size, pause)));
        }
        Behaviour::Fails(failure, bytes) => {
            let response = answer::answer(shared, request, Duration::ZERO).await;
            let end = async move {
                match failure {
                    Failure::End => return,
                    Failure::Stall => {}
                    Failure::Close => connection.end.cancel(),
                    Failure::Reset => {
                        connection.end_with_reset();
                        connection.end.cancel();
                    }
                }
                std::future::pending::<()>().await;
            };
            return Ok(response.map(|whole| body::until(whole, bytes, end)));
        }
        Behaviour::SlowChunks(pause) => pause,
        Behaviour::Status(status) => return Ok(body::error(status, "scripted to fail")),
        Behaviour::Hang => std::future::pending().await,
        Behaviour::Reset => {
            connection.end_with_reset();
            return Err(NoAnswer);
        }
    };
    if is_scrape {
        return Ok(answer::metrics(&shared));
    }
    let arrived = Instant::now();
    let answer = answer::answer(shared.clone(), request, pause).await;
    lock(&shared.busy).push(arrived..Instant::now());
    Ok(answer)
}
