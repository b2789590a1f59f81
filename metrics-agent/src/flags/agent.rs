//! The agent that a command reads from.

use core::error::Error;
use std::path::PathBuf;

use clap::Args;
use hyper::Uri;
use rustls::pki_types::ServerName;

use super::error::FlagError;
use super::values::{agent, server_name};
use crate::commands::agent_client::Agent;
use crate::scrape::connection::credentials::{Files, Trust};

/// The agent and the pool that a command reads.
#[derive(Args, Debug)]
pub struct PoolFlags {
    /// The agent to read from.
    #[command(flatten)]
    pub agent: AgentFlags,

    /// The pool; required when the agent has several.
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
}

/// The agent that a command reads from.
#[derive(Args, Debug)]
pub struct AgentFlags {
    /// The agent, as a URL, or as HOST:PORT for http; https requires --agent-ca.
    #[arg(long, value_name = "URL|HOST:PORT", default_value = "http://127.0.0.1:9095", value_parser = agent)]
    agent: Uri,

    /// Authorities of the agent's certificate, in PEM.
    #[arg(long, value_name = "PATH")]
    agent_ca: Option<PathBuf>,

    /// The name in the agent's certificate; by default the host of the URL.
    #[arg(long, value_name = "NAME", requires = "agent_ca", value_parser = server_name)]
    agent_server_name: Option<ServerName<'static>>,

    /// Client certificate chain, in PEM.
    #[arg(long, value_name = "PATH", requires = "agent_key", requires = "agent_ca")]
    agent_cert: Option<PathBuf>,

    /// Key of --agent-cert, in PEM.
    #[arg(long, value_name = "PATH", requires = "agent_cert")]
    agent_key: Option<PathBuf>,

    /// A file with the token for the agent on its first line (`authorization: Bearer …`).
    #[arg(long, value_name = "PATH")]
    agent_token_file: Option<PathBuf>,
}

impl AgentFlags {
    /// The agent, with the credentials for it.
    pub async fn client(&self) -> Result<Agent, Box<dyn Error>> {
        let is_https = self.agent.scheme_str() == Some("https");
        if is_https != self.agent_ca.is_some() {
            let problem = "--agent https://… and --agent-ca require each other";
            return Err(FlagError(problem.to_owned()).into());
        }
        let files = Files {
            trust: self.agent_ca.clone().map(Trust::Authorities),
            certificate_and_key: self.agent_cert.clone().zip(self.agent_key.clone()),
            server_name: self.agent_server_name.clone(),
            token: self.agent_token_file.clone(),
        };
        Ok(Agent { url: self.agent.clone(), credentials: files.read().await? })
    }
}
