//! Parser for the output of `strace`.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use anyhow::{Context, Result, bail};

/// System calls that must be recorded, for `strace -e trace=`. Includes some that the replay does not support, so that
/// it can report them; a question mark precedes those that do not exist on every machine.
pub const CALLS: &str = "?open,openat,?openat2,?creat,close,lseek,write,pwrite64,writev,pwritev,?pwritev2,sendto,fsync,\
    fdatasync,ftruncate,truncate,?rename,?renameat,renameat2,?unlink,unlinkat,?mkdir,mkdirat,?rmdir,?link,linkat,\
    ?symlink,symlinkat,fallocate,copy_file_range,sendfile,clone,?clone3,?fork,?vfork";

/// A system call of the recorded process itself; those of its children are ignored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SystemCall<'a> {
    pub(super) thread: u32,
    pub(super) name: &'a str,
    args: Cow<'a, str>,
    /// Return value; -1 also if it is unknown, as for a call interrupted by the process's death.
    pub(super) result: i64,
}

/// Part of a call. An interrupted one is seen twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPhase {
    Begin,
    End,
    Whole,
}

/// An argument.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallArgument<'a> {
    Plain(&'a str),
    Text(Vec<u8>),
}

/// Parses the calls of a trace, in the order in which they began or ended.
pub(super) fn calls(trace: &str) -> impl Iterator<Item = Result<(SystemCall<'_>, CallPhase)>> {
    let mut threads: HashSet<u32> = HashSet::new();
    let mut unfinished: HashMap<u32, (&str, &str)> = HashMap::new();
    trace.lines().filter_map(move |line| {
        let (thread, rest) = line.split_once(' ')?;
        let thread: u32 = thread.parse().ok()?;
        if threads.is_empty() {
            threads.insert(thread);
        }
        let read = read(thread, rest.trim_start(), &mut unfinished).transpose()?;
        if let Ok((call, CallPhase::End | CallPhase::Whole)) = &read
            && call.args.contains("CLONE_THREAD")
            && let Ok(child) = u32::try_from(call.result)
        {
            threads.insert(child);
        }
        threads.contains(&thread).then_some(read)
    })
}

fn read<'a>(
    thread: u32,
    line: &'a str,
    unfinished: &mut HashMap<u32, (&'a str, &'a str)>,
) -> Result<Option<(SystemCall<'a>, CallPhase)>> {
    if let Some(resumed) = line.strip_prefix("<... ") {
        // A thread that was killed before strace knew the call.
        if resumed.starts_with("???") {
            unfinished.remove(&thread);
            return Ok(None);
        }
        let Some((name, first)) = unfinished.remove(&thread) else { bail!("a call ended that never began: {line}") };
        let (_, rest) = resumed.split_once(" resumed>").context("a line that strace did not finish")?;
        let (rest, result) = split_result(rest)?;
        return Ok(Some((
            SystemCall { thread, name, args: Cow::Owned(format!("{first}{rest}")), result },
            CallPhase::End,
        )));
    }
    // Signals and exits of threads are not calls.
    let Some((name, rest)) = line.split_once('(') else { return Ok(None) };
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
        return Ok(None);
    }
    if let Some(args) = rest.strip_suffix(" <unfinished ...>") {
        unfinished.insert(thread, (name, args));
        return Ok(Some((SystemCall { thread, name, args: Cow::Borrowed(args), result: -1 }, CallPhase::Begin)));
    }
    let (args, result) = split_result(rest)?;
    Ok(Some((SystemCall { thread, name, args: Cow::Borrowed(args), result }, CallPhase::Whole)))
}

/// Splits `…)   = 7` into arguments and result.
fn split_result(text: &str) -> Result<(&str, i64)> {
    let (args, result) = text.rsplit_once(" = ").context("a line that strace did not finish")?;
    let args = args.trim_end().strip_suffix(')').context("a call without its end")?;
    let number = result.split(' ').next().unwrap_or_default();
    Ok((args, number.parse().unwrap_or(-1)))
}

impl SystemCall<'_> {
    /// Parses the arguments.
    pub(super) fn arguments(&self) -> Result<Vec<CallArgument<'_>>> {
        let (mut rest, mut arguments) = (self.args.trim(), Vec::new());
        while !rest.is_empty() {
            if let Some(text) = rest.strip_prefix('"') {
                let (bytes, after) = unescape(text)?;
                if after.starts_with("...") {
                    bail!("strace left bytes out; it needs a larger -s");
                }
                arguments.push(CallArgument::Text(bytes));
                rest = after.trim_start_matches(',').trim_start();
            } else {
                let (argument, after) = rest.split_once(", ").unwrap_or((rest, ""));
                arguments.push(CallArgument::Plain(argument.trim()));
                rest = after;
            }
        }
        Ok(arguments)
    }

    /// Returns a numeric argument.
    pub(super) fn number(&self, at: usize) -> Result<i64> {
        // The first precedes any text, which may be long.
        let first = || self.args.split(',').next().unwrap_or_default().trim().parse().ok();
        let number = if at == 0 {
            first()
        } else {
            self.arguments()?
                .get(at)
                .and_then(|argument| if let CallArgument::Plain(text) = argument { text.parse().ok() } else { None })
        };
        number.with_context(|| format!("argument {at} is no number"))
    }

    /// Returns the beginning of the arguments, for error messages.
    pub(super) fn start(&self) -> String {
        self.args.chars().take(100).collect()
    }
}

/// Unescapes a string up to its closing quote; returns its bytes and the text after the quote.
fn unescape(text: &str) -> Result<(Vec<u8>, &str)> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len() / 2), 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => return Ok((out, &text[at..])),
            b'\\' => {
                let Some(&code) = bytes.get(at) else { break };
                at += 1;
                out.push(match code {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 11,
                    b'f' => 12,
                    b'0'..=b'7' => {
                        let mut value = u32::from(code - b'0');
                        let end = at + 2;
                        while let Some(digit @ b'0'..=b'7') = bytes.get(at).filter(|_| at < end) {
                            value = value * 8 + u32::from(digit - b'0');
                            at += 1;
                        }
                        u8::try_from(value).context("a byte of more than eight bits")?
                    }
                    other => other,
                });
            }
            other => out.push(other),
        }
    }
    bail!("text without an end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_threads_are_joined_and_children_ignored() {
        let trace = r#"7  clone3({flags=CLONE_VM|CLONE_THREAD, stack=0x7} => {parent_tid=[8]}, 88) = 8
7  fsync(3 <unfinished ...>
8  pwrite64(4, "a\"\\\n\0\0017\377), = 5", 16, 512) = 16
7  <... fsync resumed>)              = 0
8  clone3({flags=CLONE_VM|CLONE_VFORK}, 88) = 9
9  write(4, "x", 1) = 1
8  unlink("/s/x") = -1 ENOENT (No such file or directory)
8  --- SIGCHLD {si_signo=SIGCHLD} ---
8  sendto(5, "y", 1, MSG_NOSIGNAL, NULL, 0 <unfinished ...>
8  <... sendto resumed>) = ?
9  <... ??? resumed>) = ?
8  +++ exited with 0 +++
"#;
        let parsed: Vec<_> = calls(trace)
            .map(|call| {
                let (call, phase) = call.unwrap();
                (call.thread, call.name, call.arguments().unwrap().len(), call.result, phase)
            })
            .collect();
        let expected = [
            (7, "clone3", 3, 8, CallPhase::Whole),
            (7, "fsync", 1, -1, CallPhase::Begin),
            (8, "pwrite64", 4, 16, CallPhase::Whole),
            (7, "fsync", 1, 0, CallPhase::End),
            (8, "clone3", 2, 9, CallPhase::Whole),
            (8, "unlink", 1, -1, CallPhase::Whole),
            (8, "sendto", 6, -1, CallPhase::Begin),
            (8, "sendto", 6, -1, CallPhase::End),
        ];
        assert_eq!(parsed, expected);
        let (write, _) = calls(trace).nth(2).unwrap().unwrap();
        let text = b"a\"\\\n\0\x017\xff), = 5".to_vec();
        assert_eq!(write.arguments().unwrap()[1], CallArgument::Text(text));
        assert_eq!((write.number(0).unwrap(), write.number(3).unwrap()), (4, 512));
    }

    #[test]
    fn truncated_arguments_are_an_error() {
        let (call, _) = calls("7 write(3, \"abc\"..., 900) = 900").next().unwrap().unwrap();
        assert_eq!(call.arguments().unwrap_err().to_string(), "strace left bytes out; it needs a larger -s");
    }
}
