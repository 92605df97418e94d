//! The channel packages that are hosted, with their pinned versions. The only place with versions of packages.

/// Versions of `openclaw` that were tested; the first one is installed.
pub const OPENCLAW_VERSIONS: [&str; 2] = ["2026.9.6", "2026.9.5"];

/// A channel package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostedPackage {
    /// Name of the channel in the config.
    pub name: &'static str,
    /// Name on npm.
    pub package: &'static str,
    /// Versions that were tested; the first one is installed.
    pub versions: &'static [&'static str],
    /// Maximum length of a text in characters, until the package has reported its own.
    pub text_limit: usize,
    /// Keys of its section of the config without which it cannot start.
    pub needs: &'static [NeededKey],
    /// True if an account is linked as a device, such as by a QR code.
    pub is_linked: bool,
    /// True if it can send files; otherwise it would send their local paths as text.
    pub has_uploads: bool,
}

/// A key of a channel's section that the owner has to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeededKey {
    /// Path of the key in the section, with dots.
    pub key: &'static str,
    /// What to enter.
    pub question: &'static str,
    /// True if it is not shown while it is entered.
    pub is_secret: bool,
}

const fn shown(key: &'static str, question: &'static str) -> NeededKey {
    NeededKey { key, question, is_secret: false }
}

const fn secret(key: &'static str, question: &'static str) -> NeededKey {
    NeededKey { key, question, is_secret: true }
}

const fn hosted(name: &'static str, versions: &'static [&'static str], needs: &'static [NeededKey]) -> HostedPackage {
    HostedPackage { name, package: "", versions, text_limit: 4000, needs, is_linked: false, has_uploads: true }
}

const BOTH: &[&str] = &["2026.9.6", "2026.9.5"];
const OLDER: &[&str] = &["2026.9.5"];

/// All hosted channels, in alphabetical order.
pub const PACKAGES: [HostedPackage; 11] = [
    HostedPackage {
        package: "@openclaw/feishu",
        ..hosted("feishu", OLDER, &[shown("appId", "App ID"), secret("appSecret", "App secret")])
    },
    HostedPackage {
        package: "@openclaw/googlechat",
        ..hosted("googlechat", OLDER, &[shown("serviceAccountFile", "Path of the service account's JSON file")])
    },
    HostedPackage {
        package: "@openclaw/irc",
        text_limit: 350,
        has_uploads: false,
        ..hosted("irc", OLDER, &[shown("host", "Server, such as irc.libera.chat"), shown("nick", "Nick of the bot")])
    },
    HostedPackage {
        package: "@openclaw/line",
        text_limit: 5000,
        has_uploads: false,
        ..hosted(
            "line",
            OLDER,
            &[secret("channelAccessToken", "Channel access token"), secret("channelSecret", "Channel secret")],
        )
    },
    HostedPackage {
        package: "@openclaw/matrix",
        ..hosted(
            "matrix",
            BOTH,
            &[shown("homeserver", "URL of the homeserver"), secret("accessToken", "Access token of the bot's account")],
        )
    },
    HostedPackage {
        package: "@openclaw/mattermost",
        ..hosted("mattermost", OLDER, &[shown("baseUrl", "URL of the server"), secret("botToken", "Bot token")])
    },
    HostedPackage {
        package: "@openclaw/msteams",
        ..hosted(
            "msteams",
            OLDER,
            &[shown("appId", "App ID"), secret("appPassword", "App password"), shown("tenantId", "Tenant ID")],
        )
    },
    HostedPackage {
        package: "@openclaw/nextcloud-talk",
        ..hosted("nextcloud-talk", OLDER, &[shown("baseUrl", "URL of the server"), secret("botSecret", "Bot secret")])
    },
    HostedPackage {
        package: "@openclaw/signal",
        ..hosted(
            "signal",
            BOTH,
            &[
                shown("account", "Phone number of the bot, such as +15550001"),
                shown("transport.url", "URL of signal-cli's HTTP daemon, such as http://127.0.0.1:8080"),
            ],
        )
    },
    HostedPackage { package: "@openclaw/whatsapp", is_linked: true, ..hosted("whatsapp", BOTH, &[]) },
    HostedPackage {
        package: "@openclaw/zalo",
        text_limit: 2000,
        ..hosted("zalo", OLDER, &[secret("botToken", "Bot token")])
    },
];

/// Returns the package of a channel.
pub fn package(name: &str) -> Option<&'static HostedPackage> {
    PACKAGES.iter().find(|package| package.name == name)
}

/// Checks whether installed versions fit; an error says what is wrong and how to fix it.
pub fn fits(package: &HostedPackage, openclaw: &str, version: &str) -> Result<(), String> {
    let remedy = format!("install the versions that fit with: homard channels add {}", package.name);
    let wrong = |name: &str, found: &str, tested: &[&str]| {
        format!("{name} {found} is installed, and this Homard works with {}; {remedy}", tested.join(" and "))
    };
    if !OPENCLAW_VERSIONS.contains(&openclaw) {
        return Err(wrong("openclaw", openclaw, &OPENCLAW_VERSIONS));
    }
    if !package.versions.contains(&version) {
        return Err(wrong(package.package, version, package.versions));
    }
    if numbers(version) > numbers(openclaw) {
        return Err(format!(
            "{} {version} needs openclaw {version}, and {openclaw} is installed; {remedy}",
            package.package
        ));
    }
    Ok(())
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-']).map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_versions_fit_together() {
        for hosted in &PACKAGES {
            assert_eq!(fits(hosted, OPENCLAW_VERSIONS[0], hosted.versions[0]), Ok(()), "{hosted:?}");
            assert!(
                hosted.versions.iter().any(|version| fits(hosted, OPENCLAW_VERSIONS[1], version).is_ok()),
                "{hosted:?}"
            );
        }
        assert!(PACKAGES.is_sorted_by_key(|hosted| hosted.name));
    }

    #[test]
    fn versions_that_do_not_fit_are_refused_with_the_remedy() {
        let matrix = package("matrix").unwrap();
        for (openclaw, version, expected) in [
            (
                "2026.8.1",
                "2026.9.6",
                "openclaw 2026.8.1 is installed, and this Homard works with 2026.9.6 and 2026.9.5",
            ),
            ("2026.9.6", "2026.10.1", "@openclaw/matrix 2026.10.1 is installed"),
            ("2026.9.5", "2026.9.6", "@openclaw/matrix 2026.9.6 needs openclaw 2026.9.6, and 2026.9.5 is installed"),
        ] {
            let why = fits(matrix, openclaw, version).unwrap_err();
            assert!(why.contains(expected) && why.contains("homard channels add matrix"), "{why}");
        }
    }
}
