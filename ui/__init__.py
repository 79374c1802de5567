"""What pages are made of: session state, sidebar, forms, progress, tables; besides app.py and pages/ the only code that imports Streamlit."""
