import io.jccl.cli.Main;
import java.io.File;
import java.io.IOException;
import picocli.CommandLine;
import picocli.codegen.docgen.manpage.ManPageGenerator;

/** Writes the manual pages of jccl and of each of its commands, in AsciiDoc, to a folder. */
class ManPages {
    public static void main(String[] args) throws IOException {
        File folder = new File(args[0]);
        CommandLine jccl = Main.tree();
        int status =
                ManPageGenerator.generateManPage(
                        folder, null, new boolean[0], false, jccl.getCommandSpec());
        if (status != 0) {
            throw new IOException("the manual pages cannot be written to " + folder);
        }
    }
}
