//! Client of the API server, with the service account of the agent's pod.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::DRIVER;

/// Directory with the token and the certificate of the API server.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Time within which the API server must respond.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which a connection stays open for the next request: longer than that between two looks
/// at a slice, so that an idle agent makes no handshake of TLS.
const KEPT: Duration = Duration::from_secs(75);
/// Maximum length of a response in bytes.
const MAX_RESPONSE: u64 = 4 << 20;

/// Connection to the API server.
#[derive(Debug)]
pub(crate) struct ApiServer {
    client: ureq::Agent,
    /// URL without a path.
    server: String,
    /// File with the token, which kubelet renews.
    token: PathBuf,
}

impl ApiServer {
    /// Returns the API server of the cluster in whose pod this process runs, or `None` if it runs
    /// in no pod or in one without the token of a service account.
    ///
    /// # Errors
    /// The service account cannot be read.
    pub(crate) fn of_pod() -> Result<Option<Self>, String> {
        let variable = |name| std::env::var(name).ok();
        let host = variable("KUBERNETES_SERVICE_HOST");
        let Some((host, port)) = host.zip(variable("KUBERNETES_SERVICE_PORT")) else {
            return Ok(None);
        };
        // An IPv6 address is in brackets.
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let directory = Path::new(ACCOUNT);
        let ca = directory.join("ca.crt");
        let failed = |reason: String| {
            format!("{}: {reason}; mount the token of a service account anew", ca.display())
        };
        if !ca.exists() {
            return Ok(None);
        }
        let pem = std::fs::read(&ca).map_err(|error| failed(error.to_string()))?;
        let roots = ureq::tls::parse_pem(&pem).filter_map(|item| match item {
            Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        });
        let roots: Vec<Certificate<'static>> = roots.collect();
        if roots.is_empty() {
            return Err(failed("there is no certificate in it".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::from(roots))
            .unversioned_rustls_crypto_provider(provider);
        let client = ureq::Agent::config_builder()
            .tls_config(tls.build())
            .timeout_global(Some(PATIENCE))
            .max_idle_age(KEPT)
            .http_status_as_error(false)
            .build();
        let (server, token) = (format!("https://{host}:{port}"), directory.join("token"));
        Ok(Some(Self { client: client.into(), server, token }))
    }

    /// Reads an object. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The reason of the API server, or why it cannot be reached.
    pub(crate) fn get(&self, path: &str) -> Result<Option<Value>, String> {
        let request = self.client.get(format!("{}{path}", self.server));
        let request = request.header("Authorization", self.authorization()?);
        let response = request.call().map_err(|error| format!("GET {path}: {error}"))?;
        if response.status() == 404 {
            return Ok(None);
        }
        read(&format!("GET {path}"), response).map(Some)
    }

    /// Creates an object or changes the fields that this driver owns (server-side apply).
    ///
    /// # Errors
    /// The reason of the API server, or why it cannot be reached.
    pub(crate) fn apply(&self, path: &str, object: &Value) -> Result<Value, String> {
        let url = format!("{}{path}?fieldManager={DRIVER}&force=true", self.server);
        let request = self.client.patch(url).header("Authorization", self.authorization()?);
        let request = request.header("Content-Type", "application/apply-patch+yaml");
        let sent = request.send(object.to_string());
        read(&format!("PATCH {path}"), sent.map_err(|error| format!("PATCH {path}: {error}"))?)
    }

    /// Deletes an object if it exists.
    ///
    /// # Errors
    /// The reason of the API server, or why it cannot be reached.
    pub(crate) fn delete(&self, path: &str) -> Result<(), String> {
        let request = self.client.delete(format!("{}{path}", self.server));
        let request = request.header("Authorization", self.authorization()?);
        let response = request.call().map_err(|error| format!("DELETE {path}: {error}"))?;
        match response.status().as_u16() {
            404 => Ok(()),
            _ => read(&format!("DELETE {path}"), response).map(drop),
        }
    }

    fn authorization(&self) -> Result<String, String> {
        let token = std::fs::read_to_string(&self.token)
            .map_err(|error| format!("{}: {error}", self.token.display()))?;
        Ok(format!("Bearer {}", token.trim()))
    }
}

/// Reads a response, which must be one of success.
fn read(what: &str, mut response: ureq::http::Response<ureq::Body>) -> Result<Value, String> {
    let status = response.status();
    let body = response.body_mut().with_config().limit(MAX_RESPONSE).read_to_string();
    let body = body.map_err(|error| format!("{what}: {error}"))?;
    let value: Value = serde_json::from_str(&body).unwrap_or_default();
    match status.is_success() {
        true => Ok(value),
        false => {
            let message = value["message"].as_str().unwrap_or("no reason is given");
            Err(format!("{what}: {status}: {message}"))
        }
    }
}
