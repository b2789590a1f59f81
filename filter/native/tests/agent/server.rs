//! A scripted agent: a server whose responses a test decides.

use core::time::Duration;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use endpoint_picker_wire::Message;
use endpoint_picker_wire::batch::{Batch, Part, Response, Responses};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The path with its query.
    pub(crate) path: String,
    /// Each `name: value`, in lower case.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn is_report(&self) -> bool {
        self.path.ends_with("/report")
    }

    pub(crate) fn has(&self, header: &str) -> bool {
        self.headers.iter().any(|other| other == header)
    }
}

/// The server's reaction to a request.
pub(crate) enum Reply {
    /// A response.
    Answer(u16, Vec<u8>),
    /// These bytes, and the end of the connection.
    Bytes(Vec<u8>),
    /// No response while the server runs.
    Hang,
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server. Dropping it closes its port and its connections.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    handler: Box<Handler>,
    tls: Option<Arc<ServerConfig>>,
    is_stopped: AtomicBool,
    /// Connections that are open.
    open: AtomicUsize,
    connections: Mutex<Vec<TcpStream>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(free_port(), None, handler)
    }

    /// A server on a port that an earlier one had.
    pub(crate) fn on(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            tls,
            is_stopped: AtomicBool::default(),
            open: AtomicUsize::default(),
            connections: Mutex::default(),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.accept(&listener))
        };
        Self { address, shared, accepting: Some(accepting) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}

/// A free port of loopback.
pub(crate) fn free_port() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        // The thread waits for a connection, and ends after this connection.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.is_stopped.load(Ordering::SeqCst) {
                return;
            }
            let stream = stream.unwrap();
            // A client that hangs must not keep the test's process.
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            self.connections.lock().unwrap().push(stream.try_clone().unwrap());
            self.open.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(self);
            thread::spawn(move || {
                match shared.tls.clone() {
                    None => shared.serve(stream),
                    Some(tls) => {
                        shared.serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream));
                    }
                }
                shared.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }

    /// The reply to a request. The parts of a batch are requests of their own.
    fn reply(&self, request: &Request) -> Reply {
        if request.path != "/v1/batch" {
            return (self.handler)(request);
        }
        let batch = Batch::decode(request.body.as_slice()).unwrap();
        let mut responses = Vec::new();
        for Part { path, body } in batch.parts {
            let headers = request.headers.clone();
            match (self.handler)(&Request { path, headers, body: body.unwrap_or_default() }) {
                Reply::Answer(status, body) => responses.push(Response { status: status.into(), body }),
                whole @ (Reply::Bytes(_) | Reply::Hang) => return whole,
            }
        }
        Reply::Answer(200, Responses { format: batch.format, responses }.encode_to_vec())
    }

    /// Serves requests until the connection ends.
    fn serve(&self, stream: impl Read + Write) {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream) {
            let (bytes, is_last) = match self.reply(&request) {
                Reply::Answer(status, body) => {
                    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
                    ([head.into_bytes(), body].concat(), false)
                }
                Reply::Bytes(bytes) => (bytes, true),
                Reply::Hang => {
                    // Nothing more is sent; the client's end of the connection is the next that can be read.
                    let _ = stream.read(&mut [0]);
                    return;
                }
            };
            if stream.get_mut().write_all(&bytes).and_then(|()| stream.get_mut().flush()).is_err() || is_last
            {
                return;
            }
        }
    }
}

fn read_request(stream: &mut impl BufRead) -> Option<Request> {
    let mut line = || {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    };
    let path = line()?.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        match line()?.to_lowercase() {
            end if end.is_empty() => break,
            header => headers.push(header),
        }
    }
    let length = headers.iter().find_map(|header| header.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    match stream.read_exact(&mut body) {
        Ok(()) => Some(Request { path, headers, body }),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
        Err(error) => panic!("{error}"),
    }
}
