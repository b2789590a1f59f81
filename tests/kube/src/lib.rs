//! A Kubernetes cluster without containers, for tests: everything that the product touches is real, and pods
//! are processes.
//!
//! - [`Cluster`]: etcd, the API server and the controllers that make pods of Deployments and `EndpointSlices`
//!   of Services.
//! - [`Node`]: a kubelet. It starts the programs of pods, each pod in a network namespace with an address of
//!   its own.
//! - [`EnvoyGateway`]: Envoy Gateway on that API server, with Envoy as its child.
//! - [`Extension`]: the same with proxies as pods, and with the agents of a release as Envoy Gateway's
//!   extension server.
//! - [`AiGateway`]: Envoy AI Gateway on it, whose extension server Envoy Gateway calls too.
//! - [`KServe`]: KServe's controller of `LLMInferenceService`s on that API server.
//! - [`Istio`]: Istio's control plane on that API server, with proxies as pods.
//! - [`Ground`]: a cluster and a node, shared by the tests of a run. [`GatewayGround`]: the same with Envoy
//!   Gateway.
//! - [`Namespace`]: the network in which all of them run.
//! - [`Installation`]: the chart, installed by helm, with model servers, a Gateway and a form of the filter.
//! - [`Load`]: requests without a pause, with the pod that answered each.
//!
//! `make test-kube`, `test-gateway`, `test-extension` and `test-istio` run the tests of this crate. They
//! install the programs with `make kube-tools` and `make gateway-tools`, and give each test program a network
//! namespace of its own with `tools/kube/namespace`.

mod ai_gateway;
pub mod chart;
pub mod cluster;
mod extension;
mod gateway;
mod ground;
mod installation;
mod istio;
mod kserve;
mod load;
mod modules;
mod namespace;
mod next_version;
mod node;
mod programs;
mod registry;
mod servers;
mod token;

pub use ai_gateway::{AiGateway, Order};
pub use cluster::{Cluster, Crds};
pub use extension::{Extension, PROXIES};
pub use gateway::EnvoyGateway;
pub use ground::{GatewayGround, Ground};
pub use installation::{Installation, POOL, accepted_reports, doctor_finds_nothing};
pub use istio::Istio;
pub use kserve::KServe;
pub use load::{Answer, Answers, Load};
pub use modules::Modules;
pub use namespace::{HOST_ADDRESS, Namespace};
pub use next_version::NextVersion;
pub use node::{Image, Node, ReadinessChange};
pub use registry::{PublishedChart, Registry};
pub use servers::model_servers;
pub use token::ProxyToken;
