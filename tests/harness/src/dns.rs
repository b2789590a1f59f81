//! A DNS server whose replies a program decides.

use async_trait::async_trait;
use hickory_server::Server;
use hickory_server::net::runtime::Time;
use hickory_server::proto::op::{Header, HeaderCounts, Metadata};
use hickory_server::proto::rr::{RData, Record};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use std::net::IpAddr;
use tokio::net::UdpSocket;

pub use hickory_server::proto::op::ResponseCode;
pub use hickory_server::proto::rr::RecordType;

/// The names of a server.
pub trait Zone: Send + Sync + Unpin + 'static {
    /// Seconds for which a reply holds.
    const TTL: u32;

    /// The addresses of a name, which is without a dot at its end, or the error of a query for records of
    /// this type. Addresses of another type are left out.
    fn addresses(&self, name: &str, record_type: RecordType) -> Result<Vec<IpAddr>, ResponseCode>;
}

/// A running server. It ends when dropped.
pub struct DnsServer<Z: Zone> {
    _server: Server<Handler<Z>>,
}

impl<Z: Zone> DnsServer<Z> {
    /// Serves a zone at this socket.
    pub fn start(socket: UdpSocket, zone: Z) -> Self {
        let mut server = Server::new(Handler(zone));
        server.register_socket(socket);
        Self { _server: server }
    }
}

struct Handler<Z>(Z);

#[async_trait]
impl<Z: Zone> RequestHandler for Handler<Z> {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut response: R,
    ) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&request.metadata);
        let records = records(&self.0, request).unwrap_or_else(|code| {
            metadata.response_code = code;
            vec![]
        });
        let message =
            MessageResponseBuilder::from_message_request(request).build(metadata, &records, [], [], []);
        // A client without a response asks again.
        match response.send_response(message).await {
            Ok(sent) => sent,
            Err(_) => Header { metadata, counts: HeaderCounts::default() }.into(),
        }
    }
}

fn records<Z: Zone>(zone: &Z, request: &Request) -> Result<Vec<Record>, ResponseCode> {
    let query = request.request_info().map_err(|_| ResponseCode::FormErr)?.query;
    let record_type = query.query_type();
    let addresses = zone.addresses(query.name().to_string().trim_end_matches('.'), record_type)?;
    let data = addresses.into_iter().map(RData::from).filter(|data| data.record_type() == record_type);
    Ok(data.map(|data| Record::from_rdata(query.original().name().clone(), Z::TTL, data)).collect())
}
