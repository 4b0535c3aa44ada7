package io.jccl.cli.shell;

import picocli.CommandLine.IVersionProvider;

/** The version shown by {@code --version} and in the headers of reports. */
public final class Version implements IVersionProvider {
    /** This library's version. */
    public static final String TEXT = "0.1.0-SNAPSHOT";

    /** Creates it for picocli. */
    public Version() {}

    @Override
    public String[] getVersion() {
        return new String[] {
            "jccl " + TEXT,
            "Java " + Runtime.version() + ", " + System.getProperty("java.vm.name"),
            System.getProperty("os.name") + " " + System.getProperty("os.arch"),
        };
    }
}
