//! Readiness probes.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The pause until the first success. The kubelet waits for the probe's period; but no test is about the
/// start of its pods.
const STARTING_PERIOD: Duration = Duration::from_millis(50);

/// The readiness of one container.
#[derive(Debug)]
pub(super) struct Readiness {
    check: Option<Check>,
    is_ready: bool,
    has_been_ready: bool,
    /// Results in a row that differ from the state.
    against: i32,
    due: Instant,
}

#[derive(Debug)]
struct Check {
    address: SocketAddr,
    /// Path and header fields of an HTTP request; `None` for a connection alone.
    get: Option<(String, Vec<(String, String)>)>,
    period: Duration,
    timeout: Duration,
    failure_threshold: i32,
    success_threshold: i32,
}

impl Readiness {
    /// The readiness of a container that starts now; one without a probe is ready.
    pub(super) fn new(container: &Container, address: Ipv4Addr) -> Result<Self> {
        let probe = container.readiness_probe.as_ref();
        let check = probe.map(|probe| Check::new(probe, container, address)).transpose()?;
        let delay = probe.and_then(|probe| probe.initial_delay_seconds).unwrap_or(0);
        Ok(Self {
            is_ready: check.is_none(),
            check,
            has_been_ready: false,
            against: 0,
            due: Instant::now() + seconds(delay),
        })
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Runs the probe if it is due.
    pub(super) async fn update(&mut self) {
        let Some(check) = self.check.as_ref().filter(|_| Instant::now() >= self.due) else { return };
        self.due = Instant::now() + if self.has_been_ready { check.period } else { STARTING_PERIOD };
        let succeeded = timeout(check.timeout, check.run()).await.is_ok_and(|result| result.is_ok());
        if succeeded == self.is_ready {
            self.against = 0;
            return;
        }
        self.against += 1;
        let threshold = if succeeded { check.success_threshold } else { check.failure_threshold };
        if self.against >= threshold {
            self.is_ready = succeeded;
            self.has_been_ready |= succeeded;
            self.against = 0;
        }
    }
}

impl Check {
    fn new(probe: &Probe, container: &Container, address: Ipv4Addr) -> Result<Self> {
        let (port, get) = if let Some(http) = &probe.http_get {
            let path = http.path.clone().unwrap_or_else(|| "/".into());
            let headers = http.http_headers.iter().flatten();
            let headers = headers.map(|header| (header.name.clone(), header.value.clone())).collect();
            (&http.port, Some((path, headers)))
        } else if let Some(tcp) = &probe.tcp_socket {
            (&tcp.port, None)
        } else if let Some(grpc) = &probe.grpc {
            // A connection stands for the call: no program asks containers with such a probe here.
            (&IntOrString::Int(grpc.port), None)
        } else {
            bail!("container {:?}: its kind of probe is not supported here", container.name);
        };
        Ok(Self {
            address: SocketAddr::from((address, port_number(port, container)?)),
            get,
            period: seconds(probe.period_seconds.unwrap_or(10)),
            timeout: seconds(probe.timeout_seconds.unwrap_or(1)),
            failure_threshold: probe.failure_threshold.unwrap_or(3),
            success_threshold: probe.success_threshold.unwrap_or(1),
        })
    }

    async fn run(&self) -> Result<()> {
        let Some((path, headers)) = &self.get else {
            TcpStream::connect(self.address).await?;
            return Ok(());
        };
        let mut request =
            endpoint_picker_harness::client::http1().get(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.header("user-agent", "kube-probe").send().await?.error_for_status()?;
        Ok(())
    }
}

/// The number of a port that a probe or a hook names.
pub(super) fn port_number(port: &IntOrString, container: &Container) -> Result<u16> {
    let number = match port {
        IntOrString::Int(port) => *port,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let port = ports.find(|port| port.name.as_ref() == Some(name));
            port.with_context(|| format!("the container has no port {name}"))?.container_port
        }
    };
    Ok(u16::try_from(number)?)
}

fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}
