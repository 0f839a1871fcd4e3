//! Goal: PostgreSQL on the mount has every transaction that was acknowledged, and is whole, after `kill -9` of itself, of the file system
//! and of the server. Method: a cluster with data checksums as Debian's packages make it, pgbench at work; after each kill all of
//! it is started again, recovers, and sums of accounts, tellers and branches must be those of the history, which has all that was
//! acknowledged; at the end pg_amcheck and pg_checksums.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../../crates/daemon/tests/block_server/mod.rs"]
mod block_server;
mod mounted;

use block_server::{Server, write_setup_of};
use diecut_testing::needs::Need;
use diecut_testing::wait;
use mounted::{Mount, run};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Programs refuse root.
const USER: &str = "postgres";

struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    /// Sockets, logs and acknowledgements, outside of the mount.
    outside: PathBuf,
}

impl Cluster {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "timeout", "-k", "1", "100"]);
        command.arg(self.programs.join(program)).current_dir(&self.outside);
        command.env("PGHOST", &self.outside).env("PGDATABASE", "postgres").env("PGUSER", USER);
        command
    }

    fn initialize(&self) {
        // The file system is synced as a whole after it.
        let mut initialize = self.command("initdb");
        initialize.args(["--no-sync", "--data-checksums", "--wal-segsize=1", "-A", "trust", "-D"]);
        run(initialize.arg(&self.data));
        let settings = "listen_addresses = ''\nshared_buffers = '8MB'\nmin_wal_size = '4MB'\nmax_wal_size = '16MB'\n\
                        checkpoint_timeout = '30s'\n";
        std::fs::write(self.data.join("postgresql.auto.conf"), settings).unwrap();
        std::fs::File::open(&self.data).unwrap().sync_all().unwrap();
    }

    /// Returns when it has recovered.
    fn start(&self) -> Postmaster {
        let log = std::fs::File::options().append(true).create(true).open(self.outside.join("log")).unwrap();
        let mut postgres = Command::new("setpriv");
        postgres
            .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
            .arg(self.programs.join("postgres"));
        postgres.arg("-D").arg(&self.data).arg("-k").arg(&self.outside).current_dir(&self.outside);
        let mut child = Postmaster(postgres.stderr(log).stdout(Stdio::null()).spawn().unwrap());
        let is_asked = || self.command("psql").args(["-qc", "SELECT 1"]).output().unwrap().status.success();
        let recovered = wait::comes(|| {
            let answers = is_asked();
            (answers || child.0.try_wait().unwrap().is_some()).then_some(answers)
        });
        let log = || std::fs::read_to_string(self.outside.join("log")).unwrap();
        assert_eq!(recovered, Some(true), "it does not start: {}", log());
        child
    }

    fn ask(&self, query: &str) -> String {
        run(self.command("psql").args(["-qAtc", query])).trim().to_owned()
    }

    /// Whether a process of it is left.
    fn is_running(&self) -> bool {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        processes
            .filter_map(|path| std::fs::read_link(path.join("cwd")).ok())
            .any(|cwd| cwd.starts_with(&self.data))
    }

    /// Transactions that pgbench saw committed in all runs.
    fn acked(&self) -> u64 {
        let files = std::fs::read_dir(&self.outside).unwrap().map(|entry| entry.unwrap().path());
        let logs = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("acked."));
        logs.map(|path| std::fs::read_to_string(path).unwrap().lines().count() as u64).sum()
    }

    /// Transactions that are there.
    fn found(&self) -> u64 {
        self.ask("SELECT count(*) FROM pgbench_history").parse().unwrap()
    }

    fn check(&self, what: &str) -> u64 {
        let sums = self.ask(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
             (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)",
        );
        let sums: Vec<&str> = sums.split('|').collect();
        assert!(sums.len() == 4 && sums.iter().all(|sum| *sum == sums[0]), "{what}: {sums:?}");
        let found = self.found();
        let acked = self.acked();
        assert!(found >= acked, "{what}: {acked} transactions were acknowledged, {found} are there");
        found
    }
}

/// Its first process, without which the others end.
struct Postmaster(Child);

impl Drop for Postmaster {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Of the newest version; nowhere if there is none.
fn programs() -> PathBuf {
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").map(|entries| entries.map(|entry| entry.unwrap().path()));
    let newest = versions.ok().and_then(|versions| versions.map(|path| path.join("bin")).max());
    newest.unwrap_or_default()
}

fn owner() -> (u32, u32) {
    let id = |what| run(Command::new("id").args([what, USER])).trim().parse().unwrap();
    (id("-u"), id("-g"))
}

fn folder_of_user(path: &Path) {
    std::fs::create_dir(path).unwrap();
    let (uid, gid) = owner();
    chown(path, Some(uid), Some(gid)).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn transactions_survive_kills_of_postgresql_the_file_system_and_the_server() {
    let initdb = Need::File(programs().join("initdb"), "PostgreSQL; scripts/setup.sh vlfs");
    if !mounted::is_possible(&[initdb, Need::Program("setpriv")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    write_setup_of(folder.path(), 900);
    let mut server = Server::start(folder.path(), 1);
    let (at, volume) = (folder.path().join("mount"), format!("blocks-a@{}", server.socket().display()));
    let cluster =
        Cluster { programs: programs(), data: at.join("data"), outside: folder.path().join("outside") };
    let arguments = [volume.as_str(), "--allow-other"];
    let mut mount = Mount::start(&at, &arguments);
    folder_of_user(&cluster.outside);
    folder_of_user(&cluster.data);
    cluster.initialize();
    let mut postgres = cluster.start();
    run(cluster.command("pgbench").args(["-i", "-s", "1", "-q"]));
    let mut found = 0;
    for round in 0..6 {
        let what = ["PostgreSQL", "the file system", "the server"][round % 3];
        let mut pgbench = cluster.command("pgbench");
        pgbench.args(["-n", "-c", "4", "-T", "60", "-l", &format!("--log-prefix=acked.{round}")]);
        let mut pgbench = pgbench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait::wait_until(|| "pgbench is at work", || cluster.found() >= found + 100);
        assert!(pgbench.try_wait().unwrap().is_none(), "pgbench is at work");
        match round % 3 {
            0 => postgres.0.kill().unwrap(),
            1 => mount.child.kill().unwrap(),
            _ => server.child.kill().unwrap(),
        }
        // It writes down what was acknowledged at its end.
        pgbench.wait().unwrap();
        drop(postgres);
        wait::wait_until(|| "processes of PostgreSQL stay", || !cluster.is_running());
        if round % 3 > 0 {
            mount.kill();
            if round % 3 == 2 {
                server = Server::start(folder.path(), 1);
            }
            mount = Mount::start(&at, &arguments);
        }
        postgres = cluster.start();
        found = cluster.check(&format!("round {round}, kill of {what}"));
        println!("kill of {what}: {} transactions acknowledged so far, {found} there", cluster.acked());
    }
    assert!(cluster.acked() > 300, "{} transactions", cluster.acked());
    run(cluster.command("pg_amcheck").args(["--install-missing", "--heapallindexed", "postgres"]));
    // A fast shutdown.
    run(Command::new("kill").args(["-INT", &postgres.0.id().to_string()]));
    assert!(postgres.0.wait().unwrap().success());
    let said = run(cluster.command("pg_checksums").arg("--check").arg("-D").arg(&cluster.data));
    assert!(said.lines().any(|line| line.trim() == "Bad checksums:  0"), "{said}");
    mount.unmount();
}
