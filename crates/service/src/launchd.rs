//! The property list of launchd, for a user (agent) or for the machine (daemon).
//!
//! launchd passes sockets only to programs that ask for them with its own library, so the gateway opens its own; a
//! restart keeps them by a hand-over.

use crate::{
    Error,
    spec::{Scope, ServiceSpec},
    supervisor,
};

/// Label of the job.
pub const LABEL: &str = "ai.homard.gateway";

/// Returns the property list.
pub fn property_list(spec: &ServiceSpec) -> Result<String, Error> {
    spec.check()?;
    if !spec.credentials.is_empty() || spec.environment_file.is_some() {
        let text = "launchd passes neither credentials nor an environment file; use ${file:…} in the config instead";
        return Err(Error::Spec(text.to_owned()));
    }
    let mut variables = vec![("HOMARD_STATE_DIR", spec.state_dir.display().to_string())];
    variables.extend(spec.config.as_ref().map(|config| ("HOMARD_CONFIG_PATH", config.display().to_string())));
    variables.extend((!spec.search_path.is_empty()).then(|| ("PATH", spec.search_path.clone())));
    let variables: String =
        variables.iter().map(|(name, value)| format!("    <key>{name}</key>\n    {}\n", string(value))).collect();
    let user = match &spec.scope {
        Scope::User => String::new(),
        Scope::System(user) => format!("  <key>UserName</key>\n  {}\n", string(user)),
    };
    let log = string(&supervisor::log_file(&spec.state_dir).display().to_string());
    Ok(format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{LABEL}</string>
  <key>ProgramArguments</key>
  <array>
    {program}
    <string>gateway</string>
    <string>run</string>
  </array>
  <key>EnvironmentVariables</key>
  <dict>
{variables}  </dict>
{user}  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>10</integer>
  <key>ExitTimeOut</key>
  <integer>90</integer>
  <key>ProcessType</key>
  <string>Interactive</string>
  <key>Umask</key>
  <integer>63</integer>
  <key>StandardOutPath</key>
  {log}
  <key>StandardErrorPath</key>
  {log}
</dict>
</plist>
"#,
        program = string(&spec.program.display().to_string()),
    ))
}

fn string(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<string>{text}</string>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{spec::Credential, systemd::tests::spec};

    #[test]
    fn the_property_list_of_a_user() {
        insta::assert_snapshot!("user.plist", property_list(&spec(Scope::User)).unwrap());
    }

    #[test]
    fn the_property_list_of_a_machine() {
        let spec = ServiceSpec { search_path: "/usr/bin:/a&b".to_owned(), ..spec(Scope::System("_homard".to_owned())) };
        insta::assert_snapshot!("system.plist", property_list(&spec).unwrap());
    }

    #[test]
    fn a_credential_is_refused_instead_of_dropped() {
        let credentials = vec![Credential::parse("a=/b").unwrap()];
        assert!(property_list(&ServiceSpec { credentials, ..spec(Scope::User) }).is_err());
    }
}
