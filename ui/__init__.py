"""What pages are made of: session state, scenario bar, forms, progress, tables; besides app.py and
pages/ the only code that imports Streamlit.
"""
