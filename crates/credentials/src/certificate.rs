//! The TLS certificate of this state directory's gateway: from the config, or generated once and stored.
//!
//! A generated certificate is self-signed, so clients identify it by its fingerprint; clients in the same state
//! directory read that from the file.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use homard_gateway::Tls;
use homard_runtime::Ambient;
use homard_settings::{
    Config, Text,
    paths::{self, Paths},
};
use jiff::{Span, Timestamp, ToSpan, tz::TimeZone};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::{Error, gateway_secret::create_private_file};

/// Why a certificate could not be generated.
type GenerateError = Box<dyn std::error::Error + Send + Sync>;

/// Validity of a generated certificate, as in OpenClaw.
const VALID_YEARS: i64 = 10;

/// Paths of the certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl CertificateFiles {
    fn find(config: &Config, paths: &Paths) -> Self {
        let (tls, folder) = (&config.gateway.tls, paths.state.join("gateway").join("tls"));
        let file_path = |configured: &Option<Text>, name: &str| match configured {
            Some(path) => paths::expand(Path::new(path.as_str()), paths::home().as_deref()),
            None => folder.join(name),
        };
        Self {
            certificate: file_path(&tls.cert_path, "gateway-cert.pem"),
            key: file_path(&tls.key_path, "gateway-key.pem"),
        }
    }
}

/// Loads the gateway's certificate, if TLS is enabled. `addresses` become its names if it is generated.
pub fn open(config: &Config, paths: &Paths, addresses: &[IpAddr]) -> Result<Option<Tls>, Error> {
    if !config.gateway.tls.enabled {
        return Ok(None);
    }
    let files = CertificateFiles::find(config, paths);
    let (certificate, key) = (&files.certificate, &files.key);
    match (certificate.exists(), key.exists()) {
        (true, true) => {}
        (false, false) if config.gateway.tls.auto_generate => {
            generate(&files, addresses).map_err(|error| Error::Create { path: certificate.clone(), error })?;
        }
        (false, false) => {
            return Err(Error::Unusable(format!(
                "gateway.tls.enabled is true, but the certificate {} does not exist; create it, or set gateway.tls.autoGenerate to true",
                certificate.display()
            )));
        }
        (has_certificate, _) => {
            let (existing, missing) = if has_certificate { (certificate, key) } else { (key, certificate) };
            return Err(Error::Unusable(format!(
                "{} is missing, but {} exists; restore the missing file, or remove the other one and restart: the gateway then creates both",
                missing.display(),
                existing.display()
            )));
        }
    }
    let read = |file: &Path| fs::read(file).map_err(|error| Error::Read { path: file.to_owned(), error });
    let tls = Tls::new(&read(certificate)?, &read(key)?).map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        Error::Unusable(format!("TLS cannot be used with {certificate} and {key}: {error}"))
    })?;
    Ok(Some(tls))
}

/// Returns the fingerprint of the gateway's certificate; `None` if there is none yet.
pub fn fingerprint(config: &Config, paths: &Paths) -> Option<String> {
    let certificate = CertificateDer::from_pem_file(CertificateFiles::find(config, paths).certificate).ok()?;
    Some(homard_gateway::fingerprint(&certificate))
}

fn generate(files: &CertificateFiles, addresses: &[IpAddr]) -> Result<(), GenerateError> {
    let host = rustix::system::uname().nodename().to_str().ok().map(str::to_owned);
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into_iter();
    let named = addresses.iter().filter(|address| !address.is_unspecified() && !address.is_loopback());
    let mut names: Vec<_> = names.chain(named.map(IpAddr::to_string)).collect();
    names.extend(host.filter(|host| host != "localhost" && host.is_ascii()));
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "homard-gateway");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let today = Timestamp::from_millisecond(i64::try_from(Ambient::system().now_ms())?)?.to_zoned(TimeZone::UTC);
    let day = |distance: Span| {
        let day = today.checked_add(distance)?;
        Ok::<_, GenerateError>(date_time_ymd(
            i32::from(day.year()),
            u8::try_from(day.month())?,
            u8::try_from(day.day())?,
        ))
    };
    // Tolerates clocks that are a little slow.
    params.not_before = day((-1).day())?;
    params.not_after = day(VALID_YEARS.years())?;
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    create_private_file(&files.key, &key.serialize_pem())?;
    create_private_file(&files.certificate, &certificate.pem())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_files_are_those_of_the_config() {
        let paths = Paths { config: "/s/homard.json".into(), state: "/s".into() };
        let find = |text: &str| {
            let files = CertificateFiles::find(&Config::parse(text).unwrap(), &paths);
            (files.certificate, files.key)
        };
        let configured = find("{gateway: {tls: {certPath: '/c.pem', keyPath: '/k.pem'}}}");
        assert_eq!(configured, ("/c.pem".into(), "/k.pem".into()));
        let folder = Path::new("/s/gateway/tls");
        assert_eq!(find("{}"), (folder.join("gateway-cert.pem"), folder.join("gateway-key.pem")));
    }
}
