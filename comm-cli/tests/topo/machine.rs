//! Files and machines to look at.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Four GPUs on two switches with a network card each.
pub(crate) const FOUR_GPUS: &str = r#"<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:11:00.0" class="0x030200"><gpu dev="0" sm="80" gdr="1"/></pci>
      <pci busid="0000:12:00.0" class="0x030200"><gpu dev="1" sm="80" gdr="1"/></pci>
      <pci busid="0000:13:00.0" class="0x020000">
        <nic><net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1" gdr="1"/></nic>
      </pci>
    </pci>
    <pci busid="0000:20:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:21:00.0" class="0x030200"><gpu dev="2" sm="80" gdr="1"/></pci>
      <pci busid="0000:22:00.0" class="0x030200"><gpu dev="3" sm="80" gdr="1"/></pci>
      <pci busid="0000:23:00.0" class="0x020000">
        <nic><net name="mlx5_1" dev="1" speed="100000" port="1" guid="0x2" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>
"#;

/// Two process slots and an Ethernet card.
pub(crate) const TWO_SLOTS: &str = r#"<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
    <endpoint dev="0"/>
    <endpoint dev="1"/>
    <nic><net name="eth0" dev="0" speed="25000"/></nic>
  </cpu>
</system>
"#;

/// A folder for one test.
pub(crate) struct Folder(tempfile::TempDir);

/// What a command left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs `commctl topo ARGUMENTS` inside the folder, without variables of the caller that steer
    /// it.
    pub(crate) fn topo(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        run(self.0.path(), arguments, variables)
    }
}

fn run(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_commctl"));
    command.arg("topo").args(arguments).current_dir(folder);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("NCCL_") || text.starts_with("COMM_") {
            command.env_remove(name);
        }
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
